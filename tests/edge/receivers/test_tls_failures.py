"""Who cannot come in by TLS is refused, and the refusal has a name and is counted, over both transports."""

from __future__ import annotations

import asyncio
import socket
import ssl
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

import grpc
import pytest
import trustme

from tests.edge.cores import counted
from tests.edge.loops import looped
from tests.edge.sinks import GrpcSink
from tests.edge.test_security import config, over_grpc, over_http
from whymiss.config import ServerTlsConfig, parse
from whymiss.edge.receivers.grpc_tls import TlsFront
from whymiss.edge.receivers.listener import Listener, reason_of
from whymiss.edge.security import server_context
from whymiss.edge.service import Service, serving
from whymiss.measures import Point

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

YESTERDAY = datetime.now(UTC) - timedelta(days=1)


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, on disk."""

    cert: Path
    key: Path


@dataclass(frozen=True)
class Papers:
    """What honest and other parties show each other."""

    directory: Path
    authority: trustme.CA
    stranger: trustme.CA

    @property
    def root(self) -> bytes:
        return self.authority.cert_pem.bytes()

    def pair(self, name: str, *, by: trustme.CA | None = None, not_after: datetime | None = None) -> Pair:
        issued = (by or self.authority).issue_cert(
            "127.0.0.1", not_before=datetime(2020, 1, 1, tzinfo=UTC), not_after=not_after
        )
        pair = Pair(self.directory / f"{name}.pem", self.directory / f"{name}.key")
        pair.cert.write_bytes(b"".join(part.bytes() for part in issued.cert_chain_pems))
        issued.private_key_pem.write_to_path(pair.key)
        return pair


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Papers:
    directory = tmp_path_factory.mktemp("papers")
    papers = Papers(directory, trustme.CA(), trustme.CA())
    papers.authority.cert_pem.write_to_path(directory / "ca.pem")
    return papers


@asynccontextmanager
async def secured(papers: Papers, *, mutual: bool = False, server: Pair | None = None) -> AsyncIterator[Service]:
    shown = server or papers.pair("server")
    authority = f', client_ca_file: "{papers.directory / "ca.pem"}"' if mutual else ""
    tls = f', tls: {{cert_file: "{shown.cert}", key_file: "{shown.key}"{authority}}}'
    async with GrpcSink() as sink, serving(config(sink.port, tls=tls)) as service:
        yield service


@dataclass(frozen=True)
class Client:
    """A client that trusts ``root``, and shows ``pair`` where it has one."""

    root: bytes
    pair: Pair | None = None
    version: ssl.TLSVersion | None = None

    async def knock(self, service: Service) -> tuple[str, int]:
        """What it gets to hear over gRPC and over HTTP."""
        context = ssl.create_default_context(cadata=self.root.decode())
        if self.pair is not None:
            context.load_cert_chain(self.pair.cert, self.pair.key)
        credentials = grpc.ssl_channel_credentials(
            self.root, *((self.pair.key.read_bytes(), self.pair.cert.read_bytes()) if self.pair is not None else ())
        )
        return await over_grpc(service.grpc_port, {}, credentials), await over_http(service.http_port, {}, context)


REFUSED = ("UNAVAILABLE", 0)


DISTRUST = ("we_are_not_trusted", "handshake_broken_off")
"""A client that does not trust us may say so, or only leave."""


async def until(happened: Callable[[], bool]) -> None:
    """The server hears of a failure after the client."""
    async with asyncio.timeout(10):
        while not happened():  # noqa: ASYNC110 - each turn of the loop is the server's as well
            await asyncio.sleep(0)


def shake(port: int, context: ssl.SSLContext) -> None:
    """Shake hands as a client that says why it leaves."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as plain:
        context.wrap_socket(plain, server_hostname="127.0.0.1").close()


def refused(service: Service, reason: str) -> dict[str, float]:
    name = "whymiss.receiver.refused_connections"
    return {door: counted(service.measures, name, transport=door, reason=reason) for door in ("grpc", "http")}


def _is_counted(service: Service, reason: str, door: str) -> bool:
    return refused(service, reason)[door] > 0


async def expect(service: Service, *reasons: str) -> None:
    """Both doors count it, and by no other name."""

    def counts() -> list[float]:
        return [sum(refused(service, reason)[door] for reason in reasons) for door in ("grpc", "http")]

    await until(lambda: all(counts()))
    known = {dict(point.labels)["reason"] for point in _refusals(service)}
    assert known <= set(reasons)


def _refusals(service: Service) -> Iterator[Point]:
    for metric in service.measures.snapshot():
        if metric.instrument.name == "whymiss.receiver.refused_connections":
            yield from metric.points


@looped
async def honest(papers: Papers) -> None:
    async with secured(papers, mutual=True) as service:
        assert await Client(papers.root, papers.pair("client")).knock(service) == ("OK", 200)
        assert list(_refusals(service)) == []


def test_an_honest_client_is_served_and_nothing_is_counted(papers: Papers) -> None:
    honest(papers)


def test_who_does_not_trust_us_is_counted(papers: Papers) -> None:
    @looped
    async def scene() -> None:
        async with secured(papers) as service:
            assert await Client(papers.stranger.cert_pem.bytes()).knock(service) == REFUSED
            await expect(service, *DISTRUST)
            distrustful = ssl.create_default_context(cadata=papers.stranger.cert_pem.bytes().decode())
            for door, port in (("grpc", service.grpc_port), ("http", service.http_port)):
                with pytest.raises(ssl.SSLCertVerificationError):
                    await asyncio.to_thread(shake, port, distrustful)
                await until(partial(_is_counted, service, "we_are_not_trusted", door))

    scene()


def test_our_own_expired_certificate_is_counted_as_clients_refuse_it(papers: Papers) -> None:
    @looped
    async def scene() -> None:
        async with secured(papers, server=papers.pair("old-server", not_after=YESTERDAY)) as service:
            assert await Client(papers.root).knock(service) == REFUSED
            await expect(service, *DISTRUST)

    scene()


@pytest.mark.parametrize(
    ("who", "reason"),
    [("nobody", "no_certificate"), ("stranger", "certificate_authority"), ("expired", "certificate_expired")],
)
def test_a_client_without_a_valid_certificate_is_refused_by_name(papers: Papers, who: str, reason: str) -> None:
    pair = None
    if who == "stranger":
        pair = papers.pair("stranger", by=papers.stranger)
    elif who == "expired":
        pair = papers.pair("expired", not_after=YESTERDAY)

    @looped
    async def scene() -> None:
        async with secured(papers, mutual=True) as service:
            assert await Client(papers.root, pair).knock(service) == REFUSED
            await expect(service, reason)
            assert await Client(papers.root, papers.pair("client")).knock(service) == ("OK", 200)

    scene()


def test_plain_text_to_a_door_with_tls_is_refused_by_name(papers: Papers) -> None:
    @looped
    async def scene() -> None:
        async with secured(papers) as service:
            assert await over_grpc(service.grpc_port, {}, None) == "UNAVAILABLE"
            assert await over_http(service.http_port, {}, None) == 0
            await expect(service, "plain_text")

    scene()


def test_tls_to_a_door_without_is_refused_and_over_http_counted(papers: Papers) -> None:
    @looped
    async def scene() -> None:
        async with GrpcSink() as sink, serving(config(sink.port)) as service:
            assert await Client(papers.root).knock(service) == REFUSED
            # gRPC's own server tells nobody of it.
            assert refused(service, "tls_to_plain_text") == {"grpc": 0, "http": 1}

    scene()


@pytest.mark.parametrize("door", ["grpc", "http"])
def test_an_outdated_version_of_tls_is_refused_by_name(papers: Papers, door: str) -> None:
    @looped
    async def scene() -> None:
        async with secured(papers) as service:
            port = service.grpc_port if door == "grpc" else service.http_port
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            # A ClientHello of TLS 1.1 with one cipher, and nothing else.
            hello = b"\x03\x02" + bytes(32) + b"\0" + b"\0\x02\xc0\x13" + b"\x01\0"
            shake = b"\x01" + len(hello).to_bytes(3, "big") + hello
            writer.write(b"\x16\x03\x01" + len(shake).to_bytes(2, "big") + shake)
            await reader.read()
            writer.close()
            await until(partial(_is_counted, service, "tls_version", door))

    scene()


@looped
async def quiet(papers: Papers) -> None:
    shown = papers.pair("server")
    context = server_context(ServerTlsConfig(cert_file=str(shown.cert), key_file=str(shown.key)), "tls")
    reasons: asyncio.Queue[str] = asyncio.Queue()
    listener = Listener(
        "127.0.0.1:0",
        lambda _: asyncio.Protocol(),
        reasons.put_nowait,
        connections_max=10,
        context=context,
        handshake_seconds_max=0.05,
    )
    await listener.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    assert await reasons.get() == "handshake_timeout"
    assert await reader.read() == b""
    writer.close()
    _, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    writer.close()
    assert await reasons.get() == "handshake_broken_off"
    await listener.stop()
    await listener.abort_all()
    assert not listener.visits


def test_a_handshake_that_goes_no_further_is_ended_by_name(papers: Papers) -> None:
    quiet(papers)


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
@pytest.mark.parametrize("fault", ["authority", "expired", "plain text"])
def test_an_exporter_sends_nothing_to_a_next_hop_that_it_cannot_trust(
    papers: Papers, fault: str, protocol: str
) -> None:
    server = papers.pair("old-server", not_after=YESTERDAY) if fault == "expired" else papers.pair("server")
    root = papers.directory / "root.pem"
    root.write_bytes((papers.stranger if fault == "authority" else papers.authority).cert_pem.bytes())

    @looped
    async def scene() -> None:
        async with GrpcSink() as sink:
            tls = f', tls: {{cert_file: "{server.cert}", key_file: "{server.key}"}}' if fault != "plain text" else ""
            async with serving(config(sink.port, tls=tls)) as inner:
                port = inner.grpc_port if protocol == "grpc" else inner.http_port
                text = f"""
receivers: {{grpc: {{endpoint: "127.0.0.1:0"}}, http: {{endpoint: null}}}}
exporters: {{inner: {{protocol: {protocol}, endpoint: "https://127.0.0.1:{port}", tls: {{ca_file: "{root}"}},
  retry: {{initial_seconds: 0.01, max_elapsed_seconds: 0.02}}}}}}
telemetry: {{metrics_endpoint: null}}
health: {{endpoint: null}}
"""
                async with serving(parse(text, {})) as outer:
                    assert await over_grpc(outer.grpc_port, {}, None) == "OK"
                    await until(lambda: counted(outer.measures, "whymiss.exporter.failed_spans") > 0)
        assert sink.spans() == []

    scene()


def test_the_front_of_grpc_leaves_no_socket_behind(papers: Papers) -> None:
    shown = papers.pair("server")

    @looped
    async def scene() -> None:
        context = server_context(ServerTlsConfig(cert_file=str(shown.cert), key_file=str(shown.key)), "tls")
        front = TlsFront("127.0.0.1:0", context, lambda _: None, connections_max=1)
        assert front.directory.stat().st_mode & 0o777 == 0o700
        await front.start()
        await front.stop()
        await front.close()
        assert not front.directory.exists()

    scene()


def test_a_name_is_ours_and_never_the_peers() -> None:
    for error in (ssl.SSLError(1, "odd words"), OSError("odd words"), ConnectionResetError(), TimeoutError("odd")):
        assert "odd" not in reason_of(error)
