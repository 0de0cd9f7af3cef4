"""A receiver of OTLP over HTTP, decoded by the project's own protobuf classes (opentelemetry-proto).

    traces_receiver.py [CHAIN KEY]

prints its port. What comes to /v1/traces can be read as JSON by GET /spans. Other paths are receivers that
are not well: /slow answers after a minute, /html with a page, /refuse with 503; /partial rejects spans of what went wrong and takes
the others, and /warning takes all with a word.
"""

import http.server
import json
import ssl
import sys
import threading
import time

from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as service

SPANS = []
LOCK = threading.Lock()


def value(any_value):
    kind = any_value.WhichOneof("value")
    return getattr(any_value, kind) if kind else None


def attributes(pairs):
    keys = [pair.key for pair in pairs]
    assert len(set(keys)) == len(keys), keys
    return {pair.key: value(pair.value) for pair in pairs}


def spans(body):
    request = service.ExportTraceServiceRequest()
    request.ParseFromString(body)
    for resource in request.resource_spans:
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield {
                    "resource": attributes(resource.resource.attributes),
                    "scope": scope.scope.name,
                    "trace": span.trace_id.hex(),
                    "span": span.span_id.hex(),
                    "parent": span.parent_span_id.hex(),
                    "state": span.trace_state,
                    "name": span.name,
                    "kind": type(span).SpanKind.Name(span.kind),
                    "start": span.start_time_unix_nano,
                    "end": span.end_time_unix_nano,
                    "attributes": attributes(span.attributes),
                    "status": span.status.code,
                    "message": span.status.message,
                }


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments):
        pass

    def do_GET(self):
        with LOCK:
            said = json.dumps(SPANS).encode()
        self.say(200, "application/json", said)

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.path == "/v1/traces":
            assert self.headers["content-type"] == "application/x-protobuf"
            with LOCK:
                SPANS.extend(spans(body))
            answer = service.ExportTraceServiceResponse().SerializeToString()
            self.say(200, "application/x-protobuf", answer)
        elif self.path in ("/partial", "/warning"):
            self.take_in_part(list(spans(body)))
        elif self.path == "/slow":
            time.sleep(60)
        elif self.path == "/html":
            self.say(200, "text/html", b"<p>Welcome")
        else:
            self.say(503, "text/plain", b"not now")

    def take_in_part(self, came):
        is_taken = lambda span: self.path == "/warning" or "error.type" not in span["attributes"]  # noqa: E731
        taken = [span for span in came if is_taken(span)]
        with LOCK:
            SPANS.extend(taken)
        answer = service.ExportTraceServiceResponse()
        answer.partial_success.rejected_spans = len(came) - len(taken)
        answer.partial_success.error_message = "slow down" if len(came) == len(taken) else "too\nwrong"
        self.say(200, "application/x-protobuf", answer.SerializeToString())

    def say(self, status, kind, body):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
if len(sys.argv) > 1:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*sys.argv[1:3])
    server.socket = context.wrap_socket(server.socket, server_side=True)
print(server.server_address[1], flush=True)
server.serve_forever()
