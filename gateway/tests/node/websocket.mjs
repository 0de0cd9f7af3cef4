// WebSocket by `ws`: a server that says its path and protocol, and sends back what it gets (`server`); or a client of
// one that does (`client PORT CERTIFICATE`).
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import process from "node:process";

// The package is where the test has installed it.
const { WebSocket, WebSocketServer } = createRequire(process.cwd() + "/")("ws");
const [task, port, certificate] = process.argv.slice(2);

if (task === "server") {
  const server = new WebSocketServer({ host: "127.0.0.1", port: 0, perMessageDeflate: true, handleProtocols: () => "chat" });
  server.on("listening", () => console.log(server.address().port));
  server.on("connection", (connection, request) => {
    connection.send(`${request.url} ${connection.protocol}`);
    connection.on("message", (data, isBinary) => connection.send(data, { binary: isBinary }));
  });
  // It ends with who started it.
  process.stdin.on("end", () => process.exit()).resume();
} else {
  const messages = ["a", "", "ä".repeat(1000), Buffer.from([0, 255]), Buffer.alloc(1 << 20, "0123456789")];
  const connection = new WebSocket(`wss://localhost:${port}/echo`, "chat", { ca: readFileSync(certificate) });
  let first, next = 0;
  connection.on("message", (data, isBinary) => {
    if (first === undefined) {
      first = data.toString();
    } else {
      const sent = messages[next - 1];
      if (!data.equals(Buffer.from(sent)) || isBinary !== Buffer.isBuffer(sent)) throw new Error("another message");
    }
    if (next < messages.length) connection.send(messages[next++]);
    else connection.close(1000);
  });
  connection.on("close", (code) => {
    console.log(`${first}; ${next} messages, 1 MB; closed ${code}; ${connection.extensions}`);
  });
}
