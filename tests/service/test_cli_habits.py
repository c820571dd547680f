"""The command line to the last habit: names as kubectl has them, forms, time limits, completion, locales and pipes."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import yaml

import drumlin
from drumlin.api.cli import completion
from drumlin.kg.errors import UnknownMetric
from tests.listening import listening
from tests.service.conftest import ROOT, Service, drumlin_asks

CHECKOUT = "prod/payments/deployment/checkout"
MEANT = f"did you mean {CHECKOUT}?"
UNKEPT = "labels with the key tier are not kept"
LABEL = 'PREFIX : <https://w3id.org/drumlin/ns#> SELECT ?w { ?w :label "tier=web" }'


def asked(service: Service, *arguments: str, code: int = 0) -> str:
    """Return what a command writes to stdout; when it is to fail, what it says."""
    answer = drumlin_asks(*arguments, "-u", service.url)
    assert answer.returncode == code, answer.stderr
    assert "Traceback" not in answer.stderr
    return answer.stderr if code else answer.stdout


# -- entities ---------------------------------------------------------------------------------------------------------------


def test_entities_are_listed_as_kubectl_names_their_kinds(service: Service) -> None:
    """By short name, plural, class or not at all; narrowed, wide, and by their names alone."""
    listed = asked(service, "list", "deploy", "-n", "payments", "-o", "name").split()
    assert listed == [CHECKOUT, "prod/payments/deployment/ledger"]
    assert asked(service, "list", "Deployments", "-n", "payments", "-o", "name").split() == listed
    assert asked(service, "list", "no", "--limit", "1", "-o", "name") == "prod/-/node/edge-a-1\n"
    claims = asked(service, "list", "pvc", "-o", "name").split()
    assert claims
    assert all("/persistentvolumeclaim/" in each for each in claims)
    assert len(asked(service, "list", "-o", "name").split()) > 100
    plain, wide = (asked(service, "list", "deploy", "-o", form).splitlines()[0].split() for form in ("table", "wide"))
    assert plain == ["id", "type", "name", "namespace", "phase", "changed"]
    assert wide == [*plain, "owner", "generation", "iri"]
    assert yaml.safe_load(asked(service, "list", "deploy", "-o", "yaml"))[0]["type"] == "Deployment"
    assert asked(service, "list", "sts", "-n", "payments", "-o", "tsv").splitlines()[0] == "\t".join(plain)
    assert "did you mean Deployment?" in asked(service, "list", "deploymnt", code=1)
    nothing = drumlin_asks("list", "deploy", "-n", "nowhere", "-u", service.url)
    assert (nothing.returncode, nothing.stderr) == (0, "nothing is found\n")


def test_ids_are_taken_as_people_write_them(service: Service) -> None:
    """Wherever a command takes an id, kubectl's names of kinds do."""
    for spelling in ("deploy", "deployments", "Deployment", "deployments.apps"):
        assert asked(service, "get", f"prod/payments/{spelling}/checkout", "-o", "name").strip() == CHECKOUT
    resolved = json.loads(asked(service, "resolve", "prod/-/no/edge-a-1", "cpu_usage", "-o", "json"))
    assert resolved["entity"].endswith("prod/-/node/edge-a-1")
    assert asked(service, "query", "pods-on-node", "-p", "node=prod/-/no/edge-a-1", "-o", "csv").count("\n") > 3
    assert json.loads(asked(service, "dag", "prod/payments/deploy/checkout", "-o", "json"))["root"] == CHECKOUT


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (("get", "prod/payments/deploy/chekout"), 4),
        (("get", "prod/payment/deployment/checkout"), 4),
        (("get", "prod/payments/statefulset/checkout"), 4),
        (("why", "prod/payments/deployment/check-out"), 4),
        (("diff", "prod/payments/deployment/checkoutt"), 4),
        (("dag", "prod/payments/deployment/checkot"), 4),
        (("resolve", "prod/payments/deployment/checkot", "cpu_usage"), 4),
    ],
)
def test_an_id_that_is_not_there_leads_to_the_one_that_is(
    service: Service, command: tuple[str, ...], code: int
) -> None:
    """A name that is misspelt is found in its place, one that stands elsewhere by its name."""
    assert CHECKOUT in asked(service, *command, code=code).partition("hint: did you mean")[2]


def test_what_is_like_nothing_leads_to_the_list(service: Service) -> None:
    """No proposal is better than a wrong one; there are proposals for an invalid id as well."""
    assert "hint: list what there is: drumlin list" in asked(service, "get", "prod/payments/pod/zzz", code=4)
    assert "checkout" in asked(service, "get", "checkout", code=1).partition("hint: did you mean")[2]
    assert CHECKOUT in asked(service, "get", "deploy/checkout", code=1).partition("hint: did you mean")[2]
    assert "hint: list them: drumlin list pods" in asked(service, "get", "pods", code=1)


def test_similar_is_the_same_for_both_clients(service: Service) -> None:
    """At most so many, the nearest first."""

    async def twin() -> list[str]:
        async with drumlin.connect_async(service.url) as client:
            return await client.similar("prod/payments/po/checkout")

    with drumlin.connect(service.url) as client:
        assert client.similar("prod/payments/deploy/chekout", limit=1) == [CHECKOUT]
        assert asyncio.run(twin()) == client.similar("prod/payments/po/checkout")


def test_a_misspelt_metric_is_told_with_the_one_that_was_meant(service: Service) -> None:
    """A mapping of metrics raises a KeyError that is one of ours; ``in`` and ``get`` are those of a mapping."""
    with drumlin.connect(service.url) as client:
        metrics = client.workload(CHECKOUT).metrics
        with pytest.raises(UnknownMetric) as told:
            metrics["cpu_usge"]
        assert isinstance(told.value, KeyError)
        assert str(told.value) == f"{CHECKOUT} has no metric 'cpu_usge'; did you mean 'cpu_usage'?"
        assert "cpu_usage, " in str(told.value.hint)
        assert ("cpu_usge" in metrics, metrics.get("cpu_usge"), metrics["cpu_usage"].name) == (False, None, "cpu_usage")


# -- forms ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "form"),
    [
        ("SELECT ?s { ?s ?p ?o } LIMIT 1", "jsonld"),
        ("CONSTRUCT { ?s ?p ?o } WHERE { ?s ?p ?o } LIMIT 1", "csv"),
        ("CONSTRUCT { ?s ?p ?o } WHERE { ?s ?p ?o } LIMIT 1", "tsv"),
        ("CONSTRUCT { ?s ?p ?o } WHERE { ?s ?p ?o } LIMIT 1", "yaml"),
        ("ASK {}", "jsonld"),
    ],
)
def test_a_form_that_does_not_fit_is_refused(service: Service, query: str, form: str) -> None:
    """It is not replaced by another one; the error says which fit."""
    assert f"{form} does not fit the result of this query; of a SELECT: table," in asked(
        service, "sparql", query, "-o", form, code=2
    )


def test_results_are_had_in_every_form_that_fits(service: Service) -> None:
    """TSV and YAML beside the others, for the answers of queries and for documents."""
    query = "PREFIX : <https://w3id.org/drumlin/ns#> SELECT ?n { ?x a :Node ; :name ?n } ORDER BY ?n LIMIT 1"
    assert asked(service, "sparql", query, "-o", "tsv").splitlines() == ["?n", '"edge-a-1"']
    assert yaml.safe_load(asked(service, "sparql", query, "-o", "yaml")) == [{"n": "edge-a-1"}]
    assert yaml.safe_load(asked(service, "get", CHECKOUT, "-o", "yaml"))["name"] == "checkout"
    assert "name\tcheckout" in asked(service, "get", CHECKOUT, "-o", "tsv").splitlines()
    assert "why-failing" in asked(service, "query", "-o", "name").split()
    assert yaml.safe_load(asked(service, "check", "-o", "yaml"))["whole"] is True
    assert CHECKOUT in asked(service, "dag", CHECKOUT, "-o", "name").split()


# -- labels that are not kept -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [("sparql", LABEL), ("query", "workloads-with-label", "-p", "label=tier=web"), ("search", "tier=web")],
    ids=["sparql", "query", "search"],
)
def test_a_label_that_is_not_kept_is_named(service: Service, command: tuple[str, ...]) -> None:
    """What is empty for that reason says so; a label that is kept is only not there."""
    answer = drumlin_asks(*command, "-u", service.url)
    assert UNKEPT in answer.stderr
    kept = drumlin_asks(*(each.replace("tier=", "team=") for each in command), "-u", service.url)
    assert (kept.returncode, "not kept" in kept.stderr) == (0, False)


def test_groups_by_a_label_that_is_not_kept_are_refused(service: Service) -> None:
    """They would be one group of everything, which nobody asked for."""
    said = asked(
        service, "resolve", "all", "cpu_usage", "--group-by", "label:tier", "--start", "2026-11-27T22:00:00Z", code=1
    )
    assert UNKEPT in said


def test_an_empty_answer_of_a_saved_query_is_explained_by_what_was_given(service: Service) -> None:
    """The terms of the query itself are right; an id that is nowhere is named."""
    answer = drumlin_asks("query", "pods-on-node", "-p", "node=prod/-/node/nope", "-u", service.url)
    assert answer.stderr.strip().startswith("<https://kg.example/id/prod/-/node/nope> occurs nowhere in the graph")
    assert len(answer.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("selector", "named"),
    [
        ("tier=web,team!=test", "tier"),
        ("!tier", "tier"),
        ("tier in (a,b),x", "tier, x"),
        ("team=shop", None),
        ("app.kubernetes.io/name", None),
    ],
)
def test_a_selector_of_labels_that_are_not_kept_is_noted(
    capsys: pytest.CaptureFixture[str], selector: str, named: str | None
) -> None:
    """At the start, since no query will find them."""
    from drumlin.api.cli.serving import note_unkept_labels
    from drumlin.kg.config.settings import Settings

    note_unkept_labels(Settings.load(context=[{"label_selector": selector}]))
    said = capsys.readouterr().err
    assert (f"not kept, so no query finds them: {named};" in said) if named else not said


# -- the start --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base", "port", "noted"),
    [
        (None, 9000, True),
        (None, 8080, False),
        ("http://localhost:8080", 9000, False),
        ("https://kg.example", 9000, False),
    ],
)
def test_a_port_without_a_base_is_noted(
    capsys: pytest.CaptureFixture[str], base: str | None, port: int, noted: bool
) -> None:
    """Names would lead to port 8080, for the life of the store."""
    from drumlin.api.cli.serving import warn_of_base
    from drumlin.kg.config.settings import Settings

    warn_of_base(Settings.load(base=base), port)
    said = capsys.readouterr().err
    assert (f"listens on port {port}; say --base http://localhost:{port}" in said) if noted else not said


@pytest.mark.parametrize("command", ["serve", "follow"])
def test_a_cluster_that_cannot_stand_in_an_id_is_refused_at_the_start(command: str) -> None:
    """With a name that can."""
    arn = "arn:aws:eks:eu-west-1:123456789012:cluster/prod"
    arguments = ("serve", "--port", "0") if command == "serve" else ("follow", "none", "--to", "http://127.0.0.1:9")
    answer = drumlin_asks(*arguments, "--cluster", arn)
    assert answer.returncode == 1
    assert f"drumlin: cluster: '{arn}' cannot name a cluster in ids" in answer.stderr
    assert "say --cluster prod" in answer.stderr


# -- time limits ------------------------------------------------------------------------------------------------------------


@contextmanager
def silent() -> Iterator[str]:
    """Run a server that takes requests and does not answer before the end."""
    ended = threading.Event()

    class Silent(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            ended.wait(20)

        do_POST = do_GET

    server = ThreadingHTTPServer(("127.0.0.1", 0), Silent)
    server.daemon_threads = True
    with listening(server):
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            ended.set()


@pytest.mark.parametrize(
    "command",
    [("list",), ("history", "prod/a/deployment/b", "cpu_usage"), ("get", CHECKOUT)],
    ids=lambda command: command[0],
)
def test_a_time_limit_is_kept_and_named(command: tuple[str, ...]) -> None:
    """Whatever is asked for ends after ``--timeout``, and the error is about time, not about what answers."""
    with silent() as url:
        answer = drumlin_asks(*command, "--timeout", "0.2", "-u", url)
    assert answer.returncode == 5
    assert "nothing came for 0.2 s, which is the time limit" in answer.stderr
    assert "--timeout SECONDS" in answer.stderr
    assert "Drumlin service" not in answer.stderr


def test_a_query_is_stopped_by_the_service_within_the_limit(service: Service) -> None:
    """The service gets the limit, so that it ends the work and says so itself."""
    slow = "SELECT (COUNT(*) AS ?n) { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i . ?j ?k ?l . FILTER(?a != ?d && ?g != ?j) }"
    said = asked(service, "sparql", slow, "--timeout", "0.3", code=1)
    assert "time limit" in said


# -- a shell ----------------------------------------------------------------------------------------------------------------


def completed(service: Service, words: str) -> list[str]:
    """Return what bash is offered for the last word of a command line."""
    count = len(words.split(" ")) - 1
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (
            ("_DRUMLIN_COMPLETE", "complete_bash"),
            ("COMP_WORDS", words),
            ("COMP_CWORD", str(count)),
            ("DRUMLIN_URL", service.url),
        ):
            patch.setenv(name, value)
        patch.setattr(completion, "_SECONDS", 60.0)  # on a busy machine too
        return drumlin_asks().stdout.split()


def test_a_shell_completes_ids_metrics_and_queries(service: Service) -> None:
    """As they are written: with kubectl's names, by segments where there are many, and nothing where nobody answers."""
    assert "prod/" in completed(service, "drumlin get pro")
    assert completed(service, "drumlin get prod/payments/deploy/che") == ["prod/payments/deploy/checkout"]
    assert "cpu_usage" in completed(service, f"drumlin history {CHECKOUT} cpu")
    assert completed(service, "drumlin values mem_us") == ["mem_usage"]
    assert "pods-on-node" in completed(service, "drumlin query pods")
    assert completed(service, "drumlin query pods-on-node -p no") == ["node="]
    assert completed(service, "drumlin query pods-on-node -p node=prod/-/no/edge-a-g") == [
        "node=prod/-/no/edge-a-gpu-1"
    ]
    assert completed(service, "drumlin get x -o ya") == ["yaml"]
    assert "deployments" in completed(service, "drumlin list dep")
    assert completed(service, "drumlin get -u http://127.0.0.1:9 pro") == []


def ran(command: str, service: Service, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """Run a line of a shell, in which ``$D`` is the command line."""
    bare = {name: value for name, value in os.environ.items() if not name.startswith(("LC_", "LANG", "PYTHON"))}
    given = {"D": f"{sys.executable} -m drumlin.api.cli.main", "DRUMLIN_URL": service.url, **environment}
    return subprocess.run(
        ["bash", "-c", command], cwd=ROOT, env={**bare, **given}, capture_output=True, check=False, timeout=120
    )


def test_a_locale_without_utf8_is_answered_in_ascii(service: Service) -> None:
    """Arguments and stdin are read as UTF-8 all the same; nothing ends in a traceback."""
    query = 'SELECT ("é…" AS ?x) {}'
    command = f"($D sparql '{query}'; $D list é) & echo '{query}' | $D sparql - & wait"
    answer = ran(command, service, LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    assert b"Traceback" not in answer.stderr
    assert answer.stdout.decode("ascii").split() == ["x", "\\u00e9...", "x", "\\u00e9..."]
    assert "there is no type '\\u00e9'" in answer.stderr.decode("ascii")


def test_pipes_that_end_and_streams_that_are_closed_are_no_crash(service: Service) -> None:
    """A reader that has seen enough, no stdout, no stdin, an error that nobody reads."""
    command = "$D dump | head -c 10 >/dev/null & $D list >&- & $D sparql - <&- & $D get x 2>&1 | true & wait"
    answer = ran(command, service)
    assert b"Traceback" not in answer.stderr
    assert b"Exception ignored" not in answer.stderr
    assert b"the query is empty" in answer.stderr


def test_a_misspelt_variable_is_refused_before_anything_is_asked() -> None:
    """A token that would not be sent is a mistake worth a word."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DRUMLIN_TOKN", "x")
        answer = drumlin_asks("get", CHECKOUT, "-u", "http://127.0.0.1:9")
        assert answer.returncode == 1
        assert (
            answer.stderr
            == "drumlin: there is no setting DRUMLIN_TOKN (environment)\n  hint: did you mean DRUMLIN_TOKEN?\n"
        )
        assert drumlin_asks("--help").returncode == 0


def test_mistakes_of_usage_are_one_line_each() -> None:
    """Not broken by a frame, with the command that explains."""
    long = "x" * 200
    answer = drumlin_asks("get", "a/b/c/d", "-o", long)
    assert answer.returncode == 2
    assert answer.stderr == (
        f"drumlin: Invalid value for --output: '{long}' is not one of table, json, jsonld, yaml, csv, tsv, name\n  hint: drumlin get --help\n"
    )


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("search", "--limit", "5000"), "1000"),
        (("serve", "--port", "99999"), "65535"),
        (("get", "x", "--timeout", "soon"), "--timeout"),
        (("search", "--limit", "many"), "--limit"),
        (("history",), "Missing argument 'id'."),
        (("histroy",), "Did you mean 'history'?"),
        (("get", "x", "--outptu", "json"), "--output"),
    ],
)
def test_a_value_that_cannot_be_is_explained_in_our_words(command: tuple[str, ...], said: str) -> None:
    """Whatever reads the command line, its own speak does not reach a user."""
    answer = drumlin_asks(*command)
    assert answer.returncode == 2
    assert said in answer.stderr
    assert "Input" not in answer.stderr
    assert len(answer.stderr.splitlines()) == 2
