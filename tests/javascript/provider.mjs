// An OpenID Connect provider that really issues tokens: client credentials for JWTs with an audience, on a free port of loopback.
// It prints its address, and rotates its key when a line comes on standard input.
import { createServer } from "node:http";
import { createInterface } from "node:readline";
import { generateKeyPairSync } from "node:crypto";
import Provider from "oidc-provider";

const key = (kid) => ({ ...generateKeyPairSync("rsa", { modulusLength: 2048 }).privateKey.export({ format: "jwk" }), kid, use: "sig", alg: "RS256" });
const client = (id, more = {}) => ({
  client_id: id,
  client_secret: `${id}-secret-of-these-tests`,
  grant_types: ["client_credentials"],
  redirect_uris: [],
  response_types: [],
  ...more,
});

function provider(issuer, kid) {
  return new Provider(issuer, {
    jwks: { keys: [key(kid)] },
    clients: [
      ...["ada", "job", "brief"].map((id) => client(id)),
      client("pages", {
        grant_types: ["authorization_code"],
        response_types: ["code"],
        redirect_uris: ["https://kg.example/signin/callback"],
        token_endpoint_auth_method: "client_secret_post",
      }),
    ],
    findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id, email: `${id}@edge.example`, groups: [id === "ada" ? "sre" : "guests"] }) }),
    claims: { openid: ["sub", "groups"], email: ["email"] },
    conformIdTokenClaims: false,
    extraTokenClaims: (_, token) => ({ groups: token.clientId === "ada" ? ["sre"] : ["jobs"] }),
    features: {
      clientCredentials: { enabled: true },
      resourceIndicators: {
        enabled: true,
        getResourceServerInfo: (_, resource, { clientId }) => ({
          scope: "read",
          audience: resource.replace("urn:", ""),
          accessTokenFormat: "jwt",
          accessTokenTTL: clientId === "brief" ? 3 : 300,
          jwt: { sign: { alg: "RS256" } },
        }),
      },
    },
  });
}

let now;
const server = createServer((request, response) => now(request, response));
server.listen(0, "127.0.0.1", () => {
  const issuer = `http://127.0.0.1:${server.address().port}`;
  let number = 0;
  const turn = () => {
    now = provider(issuer, `key-${(number += 1)}`).callback();
    console.log(issuer);
  };
  createInterface({ input: process.stdin }).on("line", turn);
  turn();
});
