"""A gRPC server of calls of every kind, whose messages are bytes."""

import sys
import time
from concurrent import futures

import grpc


def unary(request, context):
    context.set_trailing_metadata([("x-trailer", "yes")])
    return request


def missing(request, context):
    context.abort(grpc.StatusCode.NOT_FOUND, "nothing there")


def slow(request, context):
    time.sleep(5)
    return request


def server_stream(request, context):
    for at in range(5):
        yield request + bytes([at])


def client_stream(requests, context):
    return b"".join(requests)


def both(requests, context):
    for request in requests:
        yield request


server = grpc.server(futures.ThreadPoolExecutor(max_workers=8))
handlers = {
    "Unary": grpc.unary_unary_rpc_method_handler(unary),
    "Missing": grpc.unary_unary_rpc_method_handler(missing),
    "Slow": grpc.unary_unary_rpc_method_handler(slow),
    "ServerStream": grpc.unary_stream_rpc_method_handler(server_stream),
    "ClientStream": grpc.stream_unary_rpc_method_handler(client_stream),
    "Both": grpc.stream_stream_rpc_method_handler(both),
}
server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Test", handlers),))
port = server.add_insecure_port("127.0.0.1:0")
server.start()
print(port, flush=True)
# It ends with who started it.
sys.stdin.buffer.read()
