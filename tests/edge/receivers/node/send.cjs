// Sends three spans by one of the exporters of OpenTelemetry for Node: `node send.cjs proto|json|grpc URL TOKEN`.
"use strict";
const { SpanKind, SpanStatusCode, TraceFlags } = require("@opentelemetry/api");
const { resourceFromAttributes } = require("@opentelemetry/resources");
const { BasicTracerProvider, BatchSpanProcessor } = require("@opentelemetry/sdk-trace-base");

const [kind, url, token] = process.argv.slice(2);
const authorization = `Bearer ${token}`;

function exporter() {
  if (kind === "grpc") {
    const { Metadata } = require("@grpc/grpc-js");
    const { OTLPTraceExporter } = require("@opentelemetry/exporter-trace-otlp-grpc");
    const metadata = new Metadata();
    metadata.set("authorization", authorization);
    return new OTLPTraceExporter({ url, metadata, compression: "gzip" });
  }
  const { OTLPTraceExporter } = require(`@opentelemetry/exporter-trace-otlp-${kind === "json" ? "http" : "proto"}`);
  return new OTLPTraceExporter({ url, headers: { authorization }, compression: kind === "json" ? "none" : "gzip" });
}

async function main() {
  const provider = new BasicTracerProvider({
    resource: resourceFromAttributes({ "service.name": "node" }),
    spanProcessors: [new BatchSpanProcessor(exporter())],
  });
  const tracer = provider.getTracer("a test", "1");
  const link = { context: { traceId: "ab".repeat(16), spanId: "cd".repeat(8), traceFlags: TraceFlags.SAMPLED } };
  for (let number = 0; number < 3; number++) {
    const attributes = { number, half: 0.5, yes: true, words: ["a", "ü"], large: Number.MAX_SAFE_INTEGER };
    const span = tracer.startSpan(`work ${number}`, { kind: SpanKind.CLIENT, attributes, links: [link] });
    span.addEvent("something", { at: number });
    span.setStatus({ code: SpanStatusCode.ERROR, message: "on purpose" });
    span.end();
  }
  await provider.forceFlush(); // rejects where the service has refused
  await provider.shutdown();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
