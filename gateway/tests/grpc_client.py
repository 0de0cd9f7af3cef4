"""A gRPC client. Arguments: port, certificate."""

import queue
import sys

import grpc

port, certificate = sys.argv[1:3]
with open(certificate, "rb") as file:
    credentials = grpc.ssl_channel_credentials(file.read())
channel = grpc.secure_channel(f"localhost:{port}", credentials)

unary = channel.unary_unary("/test.Test/Unary")
answer, call = unary.with_call(b"a" * 1_000_000, timeout=10)
trailers = dict(call.trailing_metadata())
print(f"unary: {len(answer)}, trailer: {trailers.get('x-trailer')}")

answers = list(channel.unary_stream("/test.Test/ServerStream")(b"x", timeout=10))
assert answers == [b"x" + bytes([at]) for at in range(5)]
print(f"server streaming: {len(answers)}")

answer = channel.stream_unary("/test.Test/ClientStream")((bytes([at]) for at in range(5)), timeout=10)
print(f"client streaming: {len(answer)}")

# Each question waits for the answer to the one before.
questions = queue.Queue()
answers = channel.stream_stream("/test.Test/Both")(iter(questions.get, None), timeout=10)
for at in range(5):
    questions.put(bytes([at]))
    assert next(answers) == bytes([at])
questions.put(None)
assert list(answers) == []
print("both: in turns")

for name, method, timeout in [("error", "Missing", 10), ("deadline", "Slow", 0.5)]:
    try:
        channel.unary_unary(f"/test.Test/{method}")(b"", timeout=timeout)
    except grpc.RpcError as error:
        details = "" if name == "deadline" else f" {error.details()}"
        print(f"{name}: {error.code().name}{details}")
