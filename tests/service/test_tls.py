"""A service that shows its own certificate."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from tests.service.conftest import run_drumlin, serving


def made(folder: Path) -> tuple[Path, Path]:
    """Make a certificate of localhost that signs itself, and return its file and that of its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    begins = datetime.now(UTC) - timedelta(days=1)
    certificate = (
        x509.CertificateBuilder(
            name, name, key.public_key(), x509.random_serial_number(), begins, begins + timedelta(days=9)
        )
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    files = folder / "cert.pem", folder / "key.pem"
    files[0].write_bytes(certificate.public_bytes(Encoding.PEM))
    files[1].write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return files


def test_a_service_shows_its_own_certificate(tmp_path: Path) -> None:
    """With `[tls]` it answers https to clients that trust the certificate; a key that does not fit is refused before it starts."""
    certificate, key = made(tmp_path)
    config = tmp_path / "drumlin.toml"
    config.write_text(f'[tls]\ncertificate = "{certificate}"\nkey = "{key}"\n')
    with serving("--store", str(tmp_path / "store"), "--config", str(config)) as service:
        address = urlsplit(service.url)
        assert address.scheme == "https"
        trusting = ssl.create_default_context(cafile=str(certificate))
        answer = httpx.get(f"https://localhost:{address.port}/livez", verify=trusting)
        assert answer.json()["status"] == "alive"
        with pytest.raises(httpx.TransportError):
            httpx.get(f"http://localhost:{address.port}/livez")
    config.write_text(f'[tls]\ncertificate = "{certificate}"\nkey = "{certificate}"\n')
    refused = run_drumlin("serve", "--store", str(tmp_path / "store"), "--config", str(config))
    assert refused.returncode != 0
    assert "cannot be served" in refused.stderr
