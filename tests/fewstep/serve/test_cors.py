"""Pages of other sites."""

from tests.fewstep.serve.conftest import running

FRONT = "https://front.example"
JSON = {"content-type": "application/json"}


def preflight(server, origin, **more):
    asked = {"origin": origin, "access-control-request-method": "POST", "access-control-request-headers": "content-type", **more}
    return server.request("OPTIONS", "/translate", headers=asked)


def test_pages_of_named_sites_alone_can_read_answers(directories, server):
    with running(directories["small"], "--cors-origins", f"{FRONT}, http://localhost:3000", FEWSTEP_TOKEN="secret") as named:
        status, headers, _ = preflight(named, FRONT)
        assert (status, headers["access-control-allow-origin"]) == (200, FRONT)
        for origin in ("https://evil.example", "null", f"{FRONT}.evil"):
            status, headers, _ = preflight(named, origin)
            assert status == 400
            assert "access-control-allow-origin" not in headers
        for token, expected in (("secret", 200), ("wrong", 401)):
            asked = {**JSON, "origin": FRONT, "authorization": f"Bearer {token}"}
            status, headers, _ = named.request("POST", "/translate", b'{"sentences": ["ein"]}', asked)
            assert (status, headers["access-control-allow-origin"]) == (expected, FRONT), "a page sees why it is refused"
        _, headers, _ = named.request("GET", "/languages", headers={"origin": "https://evil.example"})
        assert "access-control-allow-origin" not in headers
    for status, headers, _ in (preflight(server, FRONT), server.request("GET", "/healthz", headers={"origin": FRONT})):
        assert status == 403
        assert not any(name.startswith("access-control") for name in headers)
