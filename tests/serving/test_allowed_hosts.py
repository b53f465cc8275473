"""Host and Origin: under which names a server answers, and pages of which origins."""

import asyncio
import json

import pytest
from small_models import fetch, write_version
from starlette.responses import PlainTextResponse

from keras_addnorm.basics.errors import UserError
from keras_addnorm.serving.server import Settings, running
from keras_addnorm.serving.server.allowed_hosts import AllowedHosts


def answer(headers, **settings):
    """Status and text of what is answered to a request with these headers."""
    app = AllowedHosts(PlainTextResponse("passed"), Settings(".", **settings))
    sent = []

    async def send(message):
        sent.append(message)

    async def receive():
        raise AssertionError("the body is not read")

    pairs = [(name.encode(), value.encode("latin-1")) for name, value in headers]
    asyncio.run(app({"type": "http", "method": "GET", "headers": pairs}, receive, send))
    return sent[0]["status"], b"".join(part.get("body", b"") for part in sent[1:]).decode()


def status(name, *origins, **settings):
    return answer([("host", name), *(("origin", one) for one in origins)], **settings)[0]


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "localhost:8501",
        "LocalHost:9",
        "localhost.:8501",
        "127.0.0.1",
        "127.0.0.1:8501",
        "127.3.5.7",
        "[::1]:8501",
        "[0:0:0:0:0:0:0:1]",
        "[::ffff:127.0.0.1]:8501",
    ],
)
@pytest.mark.parametrize("listening", ["127.0.0.1", "localhost", "::1"])
def test_on_the_loopback_its_names_are_answered(host, listening):
    assert status(host, host=listening) == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8501",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "evillocalhost",
        "xn--localhost-foo",
        "10.0.0.7",
        "[2001:db8::7]:8501",
        "0.0.0.0",
        "2130706433",
    ],
)
def test_on_the_loopback_other_names_are_refused(host):
    found, text = answer([("host", host)])
    assert found == 403
    assert json.loads(text) == {
        "error": f"This server does not answer under the name '{host}' (header Host). If it is the "
        "server's own, start it with --allowed-hosts NAME."
    }


@pytest.mark.parametrize(
    "host",
    [
        *("", " ", ":8501", "localhost:port", "localhost:123456", "a@localhost", "localhost/x"),
        *("[::1", "[localhost]", "local host", "localhost, localhost", "ÿ", "[1.2.3]", "."),
    ],
)
def test_what_is_no_host_is_a_bad_request(host):
    found, text = answer([("host", host)], allowed_hosts=("evil.example",))
    assert found == 400
    assert json.loads(text)["error"].startswith("Expected one header Host, with a name or an addr")


@pytest.mark.parametrize("headers", [[], [("host", "localhost"), ("host", "localhost")]])
def test_there_is_one_host(headers):
    """A request of HTTP/1.0 may have none; of another program than a browser."""
    assert answer(headers)[0] == 400


def test_what_came_is_shown_in_part_and_without_control_characters():
    found, text = answer([("host", "\x1b[2J\x9b" * 1000)])
    assert found == 400
    assert len(text) < 400
    assert "\\x1b[2J\\x9b" in json.loads(text)["error"]


def test_elsewhere_every_address_is_answered_and_the_names_of_the_flags():
    for listening in ("0.0.0.0", "::", "10.0.0.7", "translator.lan"):
        for host in ("10.0.0.7:8501", "[2001:db8::7]", "203.0.113.5", "localhost", "127.0.0.1"):
            assert status(host, host=listening) == 200
        assert status("evil.example", host=listening) == 403
        assert status("10.0.0.7.evil.example", host=listening) == 403
    assert status("Translator.LAN.:8501", host="translator.lan") == 200


def test_more_names_are_allowed_by_name_by_ending_and_all():
    names = {"allowed_hosts": ("One.example", "*.Two.example", "10.0.0.7", "::7")}
    for host in ("one.example", "a.two.example:443", "b.a.two.example", "10.0.0.7", "[0::7]:1"):
        assert status(host, **names) == 200
        assert status("localhost", f"https://{host}", **names) == 200
    for host in ("a.one.example", "two.example", "eviltwo.example", "10.0.0.8", "evil.example"):
        assert status(host, **names) == 403
        assert status("localhost", f"https://{host}", **names) == 403
    assert status("evil.example", "null", allowed_hosts=("*",)) == 200
    assert answer([], allowed_hosts=("*",)) == (200, "passed")


@pytest.mark.parametrize("origin", ["http://localhost:3000", "http://127.0.0.1", "https://[::1]:7"])
def test_pages_of_the_same_machine_may_call(origin):
    assert status("localhost:8501", origin) == 200


@pytest.mark.parametrize(
    "origin",
    [
        *(
            "http://evil.example",
            "https://localhost.evil.example",
            "null",
            "",
            "file://",
            "http://",
        ),
        *(
            "localhost:8501",
            "http://localhost@evil.example",
            "http://localhost/",
            "ftp://localhost",
        ),
        *("chrome-extension://localhost", "http://localhost http://evil.example", "http://7.7.7.7"),
    ],
)
def test_pages_from_elsewhere_may_not_unless_it_is_switched_on(origin):
    found, text = answer([("host", "localhost:8501"), ("origin", origin)])
    assert found == 403
    assert f"pages of {origin!r} (header Origin)" in json.loads(text)["error"]
    assert "with --cors" in text
    assert status("localhost:8501", origin, cors=True) == 200
    # That is about pages, and not about names.
    assert status("evil.example", origin, cors=True) == 403


def test_one_page_sends_a_request():
    assert status("localhost", "http://localhost", "http://localhost") == 403


def test_a_page_under_an_address_is_answered_from_there_alone():
    """Elsewhere than on the loopback, an address is a name of the server, and of others too."""
    assert status("10.0.0.7:8501", "http://10.0.0.7:8501", host="0.0.0.0") == 200
    assert status("10.0.0.7:8501", "http://203.0.113.5", host="0.0.0.0") == 403


@pytest.mark.parametrize("name", ["https://a.example", "a.example:80", "", "*a", "a b", "*."])
def test_a_name_without_scheme_and_port_is_wanted(name):
    with pytest.raises(UserError, match=r"must be names or addresses without scheme and port"):
        Settings(".", allowed_hosts=(name,))


def test_the_server_refuses_foreign_names_at_each_path_and_sends_nobody_elsewhere(tmp_path):
    write_version(tmp_path, 3)
    settings = Settings(tmp_path, "shouter", port=0, grpc_port=None, warm_up=False)
    with running(settings) as server:
        for path, body in (
            *((path, None) for path in ("/", "/healthz", "/metrics", "/v1/models/shouter", "/no")),
            ("/v1/models/shouter:predict", {"instances": ["a"]}),
        ):
            for headers in ({"Host": "evil.example"}, {"Origin": "http://evil.example"}):
                found, sent, text = fetch(server, path, body, headers)
                assert (found, sent["connection"], list(text)) == (403, "close", ["error"])
        own = f"http://localhost:{server.port}"
        ask = {"instances": ["a"]}
        assert fetch(server, "/v1/models/shouter:predict", ask, {"Origin": own})[0] == 200
        for path in ("/metrics/", "/v1/models/shouter/", "//evil.example/"):
            found, sent, _ = fetch(server, path)
            assert (found // 100, sent["location"]) == (4, None)
