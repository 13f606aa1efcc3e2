"""Who may enter: tokens, certificates, and what a stranger gets to hear."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from pathlib import Path

import aiohttp
import grpc
import pytest
import trustme

from tests.edge.receivers.test_receivers import foreign
from tests.edge.sinks import GrpcSink
from whymiss.config import ClientTlsConfig, Config, Secret, ServerTlsConfig, parse
from whymiss.edge.otlp_names import METHODS
from whymiss.edge.security import Doorkeeper, client_context, server_context
from whymiss.edge.service import serving
from whymiss.errors import ConfigError
from whymiss.redaction import Signal

TOKEN = "a-token-of-some-length"
PROTOBUF = {"Content-Type": "application/x-protobuf"}


class Files:
    """A certificate authority on disk, with a server's and a client's pair."""

    def __init__(self, directory: Path) -> None:
        self.authority = trustme.CA()
        self.ca = directory / "ca.pem"
        self.authority.cert_pem.write_to_path(self.ca)
        self.server = self._pair(directory, "server", "127.0.0.1")
        self.client = self._pair(directory, "client", "client.example")

    def _pair(self, directory: Path, name: str, identity: str) -> tuple[Path, Path]:
        issued = self.authority.issue_cert(identity)
        cert, key = directory / f"{name}.pem", directory / f"{name}.key"
        cert.write_bytes(b"".join(part.bytes() for part in issued.cert_chain_pems))
        issued.private_key_pem.write_to_path(key)
        return cert, key


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("certificates"))


def config(sink: int, *, tls: str = "", more: str = "") -> Config:
    text = f"""
receivers: {{grpc: {{endpoint: "127.0.0.1:0"{tls}}}, http: {{endpoint: "127.0.0.1:0"{tls}}}{more}}}
exporters: {{sink: {{endpoint: "127.0.0.1:{sink}", insecure: true}}}}
telemetry: {{metrics_endpoint: null}}
health: {{endpoint: null}}
"""
    return parse(text, {})


def tls_of(files: Files, *, mutual: bool = False) -> str:
    cert, key = files.server
    authority = f', client_ca_file: "{files.ca}"' if mutual else ""
    return f', tls: {{cert_file: "{cert}", key_file: "{key}"{authority}}}'


async def over_grpc(port: int | None, metadata: Mapping[str, str], credentials: grpc.ChannelCredentials | None) -> str:
    """The name of the code that a call over gRPC ends with."""
    target = f"127.0.0.1:{port}"
    options = [("grpc.enable_retries", 0)]
    channel = (
        grpc.aio.insecure_channel(target, options=options)
        if credentials is None
        else grpc.aio.secure_channel(target, credentials, options=options)
    )
    async with channel:
        export: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(METHODS[Signal.TRACES])
        try:
            await export(foreign(), metadata=tuple(metadata.items()), timeout=10)
        except grpc.aio.AioRpcError as error:
            return error.code().name
    return "OK"


async def over_http(port: int | None, headers: Mapping[str, str], context: ssl.SSLContext | None) -> int:
    """The status that a request over HTTP ends with; 0 where the handshake fails."""
    scheme = "http" if context is None else "https"
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context or False)) as client:
        try:
            url = f"{scheme}://127.0.0.1:{port}/v1/traces"
            async with client.post(url, data=foreign(), headers={**PROTOBUF, **headers}) as answer:
                return answer.status
        except aiohttp.ClientError:
            return 0


def test_only_a_known_token_enters_and_two_may_overlap() -> None:
    async def scene() -> None:
        more = f", bearer_tokens: [{TOKEN}, another-token-of-length]"
        async with GrpcSink() as sink, serving(config(sink.port, more=more)) as service:
            for token, code, status in (
                (TOKEN, "OK", 200),
                ("another-token-of-length", "OK", 200),
                ("a-token-of-some-lengtX", "UNAUTHENTICATED", 401),
            ):
                shown = f"Bearer {token}"
                assert await over_grpc(service.grpc_port, {"authorization": shown}, None) == code
                assert await over_http(service.http_port, {"Authorization": shown}, None) == status
            assert await over_grpc(service.grpc_port, {}, None) == "UNAUTHENTICATED"
            assert await over_http(service.http_port, {}, None) == 401
            refused = {
                dict(point.labels)["transport"]: point.value
                for metric in service.measures.snapshot()
                if metric.instrument.name == "whymiss.receiver.refused_requests"
                for point in metric.points
                if dict(point.labels)["reason"] == "unauthenticated"
            }
            assert refused == {"grpc": 2, "http": 2}

    asyncio.run(scene())


def test_tls_serves_who_trusts_us_and_refuses_plain_text(files: Files) -> None:
    async def scene() -> None:
        async with GrpcSink() as sink, serving(config(sink.port, tls=tls_of(files))) as service:
            trusted = ssl.create_default_context(cafile=str(files.ca))
            stranger = ssl.create_default_context(cadata=trustme.CA().cert_pem.bytes().decode())
            assert await over_http(service.http_port, {}, trusted) == 200
            assert await over_http(service.http_port, {}, stranger) == 0
            assert await over_http(service.http_port, {}, None) == 0
            credentials = grpc.ssl_channel_credentials(files.ca.read_bytes())
            assert await over_grpc(service.grpc_port, {}, credentials) == "OK"
            other = grpc.ssl_channel_credentials(trustme.CA().cert_pem.bytes())
            assert await over_grpc(service.grpc_port, {}, other) == "UNAVAILABLE"
            assert await over_grpc(service.grpc_port, {}, None) == "UNAVAILABLE"

    asyncio.run(scene())


def test_mutual_tls_asks_for_a_certificate_of_our_authority(files: Files) -> None:
    async def scene() -> None:
        async with GrpcSink() as sink, serving(config(sink.port, tls=tls_of(files, mutual=True))) as service:
            cert, key = files.client
            known = ssl.create_default_context(cafile=str(files.ca))
            known.load_cert_chain(cert, key)
            unknown = ssl.create_default_context(cafile=str(files.ca))
            assert await over_http(service.http_port, {}, known) == 200
            assert await over_http(service.http_port, {}, unknown) == 0
            root = files.ca.read_bytes()
            with_pair = grpc.ssl_channel_credentials(root, key.read_bytes(), cert.read_bytes())
            assert await over_grpc(service.grpc_port, {}, with_pair) == "OK"
            assert await over_grpc(service.grpc_port, {}, grpc.ssl_channel_credentials(root)) == "UNAVAILABLE"

    asyncio.run(scene())


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_an_exporter_reaches_a_next_hop_with_its_own_authority(files: Files, protocol: str) -> None:
    async def scene() -> None:
        async with GrpcSink() as sink, serving(config(sink.port, tls=tls_of(files, mutual=True))) as inner:
            cert, key = files.client
            tls = f'tls: {{ca_file: "{files.ca}", cert_file: "{cert}", key_file: "{key}"}}'
            endpoint = f"127.0.0.1:{inner.grpc_port}" if protocol == "grpc" else f"https://127.0.0.1:{inner.http_port}"
            text = f"""
receivers: {{grpc: {{endpoint: "127.0.0.1:0"}}, http: {{endpoint: null}}}}
exporters: {{inner: {{protocol: {protocol}, endpoint: "{endpoint}", {tls}}}}}
telemetry: {{metrics_endpoint: null}}
health: {{endpoint: null}}
"""
            async with serving(parse(text, {})) as outer:
                assert await over_grpc(outer.grpc_port, {}, None) == "OK"
                assert [span.name for span in await sink.wait_for_spans(1)] == ["db.query"]

    asyncio.run(scene())


def test_files_that_are_missing_or_no_certificates_are_named(tmp_path: Path, files: Files) -> None:
    cert, key = files.server
    garbage = tmp_path / "garbage.pem"
    garbage.write_text("no certificate")
    with pytest.raises(ConfigError, match=r"receivers\.http\.tls\.cert_file: cannot read"):
        server_context(ServerTlsConfig(cert_file=str(tmp_path / "none"), key_file=str(key)), "receivers.http.tls")
    with pytest.raises(ConfigError, match="no certificate and its key"):
        server_context(ServerTlsConfig(cert_file=str(garbage), key_file=str(key)), "receivers.http.tls")
    settings = ServerTlsConfig(cert_file=str(cert), key_file=str(key), client_ca_file=str(garbage))
    with pytest.raises(ConfigError, match=r"client_ca_file: .* holds no certificates"):
        server_context(settings, "receivers.http.tls")
    with pytest.raises(ConfigError, match="no certificate and its key"):
        client_context(ClientTlsConfig(cert_file=str(garbage), key_file=str(key)), "exporters.x.tls")


@pytest.mark.parametrize(
    "content", [b"", b"no certificate", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"]
)
def test_a_next_hop_is_never_trusted_by_a_file_without_an_authority(tmp_path: Path, content: bytes) -> None:
    empty = tmp_path / "ca.pem"
    empty.write_bytes(content)
    with pytest.raises(ConfigError, match=r"^exporters\.\*\.tls\.ca_file: .*ca\.pem holds no certificates in PEM$"):
        client_context(ClientTlsConfig(ca_file=str(empty)), "exporters.*.tls")


@pytest.mark.parametrize("token", ["short", "sixteen chars or more", "sixteen-chars-or-möre"])
def test_a_weak_token_is_refused_without_being_repeated(token: str) -> None:
    with pytest.raises(ConfigError, match=r"receivers\.bearer_tokens\[0\]") as problem:
        parse(f'receivers: {{bearer_tokens: ["{token}"]}}', {})
    assert token not in str(problem.value)


def test_nothing_like_a_token_enters() -> None:
    keeper = Doorkeeper((Secret(TOKEN),))
    for scheme in ("Bearer", "bearer", "BEARER"):
        assert keeper.admits(f"{scheme} {TOKEN}")
    for shown in (
        None,
        "",
        TOKEN,
        f"basic {TOKEN}",
        f"Bearer{TOKEN}",
        f"Bearer {TOKEN.upper()}",
        "Bearer",
        f"Bearer {TOKEN} ",
        f"Bearer {TOKEN}\x00",
        "Bearer é",
    ):
        assert not keeper.admits(shown)
    assert Doorkeeper(()).admits(None)
