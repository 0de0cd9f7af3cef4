//! Sections that are used again, against h3's client.

use std::future::poll_fn;

use bytes::{Buf, Bytes};
use h3::client::SendRequest;
use h3::error::StreamError;
use http::{HeaderMap, Request, Response, Version};
use quicket::tokio::{Connection, Endpoint};
use quicket::{ClientConfig, ClientTls, Identity, ServerConfig, ServerTls};
use quicket_h3::OpenStreams;

/// The longest section that the server takes, in bytes.
const MAX_SECTION: usize = 600;

type Requests = SendRequest<OpenStreams, Bytes>;

/// A client of a server that answers with what it was asked.
async fn client() -> Requests {
    let identity = Identity::self_signed(["localhost"]).unwrap();
    let client = ClientTls::builder().pinned([identity.fingerprint()]).alpn(["h3"]);
    let client = ClientConfig::new(client.build().unwrap());
    let server = ServerTls::builder(identity).alpn(["h3"]).build().unwrap();
    let listening = Endpoint::bind("127.0.0.1:0").await.unwrap();
    let listener = listening.listen(ServerConfig::new(server)).unwrap();
    let endpoint = Endpoint::bind("127.0.0.1:0").await.unwrap();
    let connecting = endpoint.connect(listener.local_addr(), "localhost", &client);
    let (client, server) = tokio::join!(connecting, listener.accept());
    tokio::spawn(serve(server.unwrap()));
    let client = quicket_h3::Connection::new(client.unwrap());
    let (mut driver, requests) = h3::client::new(client).await.unwrap();
    tokio::spawn(async move { poll_fn(|cx| driver.poll_close(cx)).await });
    requests
}

async fn serve(connection: Connection) {
    let transport = quicket_h3::Connection::server(connection, MAX_SECTION).with_kept_sections();
    let requests = transport.requests();
    let mut builder = h3::server::builder();
    builder.max_field_section_size(MAX_SECTION as u64);
    let mut server = builder.build::<_, Bytes>(transport).await.unwrap();
    while let Ok(Some(resolver)) = server.accept().await {
        let transfer = requests.transfer(resolver.frame_stream.id()).unwrap();
        tokio::spawn(async move {
            let Ok((request, stream)) = quicket_h3::resolve(resolver, &transfer).await else {
                return;
            };
            assert_eq!(request.version(), Version::HTTP_3);
            let (mut sending, _receiving) = stream.split();
            let said = match request.uri().path() {
                "/known" => transfer.was_known().to_string(),
                _ => said(&request),
            };
            let mut head = Response::builder().status(203).body(()).unwrap();
            *head.headers_mut() = fields(request.uri().path());
            if !request.headers().contains_key("x-apart") {
                transfer.hold();
            }
            quicket_h3::respond(&mut sending, &transfer, head).await.unwrap();
            sending.send_data(said.into()).await.unwrap();
            sending.finish().await.unwrap();
        });
    }
}

/// What a request asks for.
fn said(request: &Request<()>) -> String {
    let fields: Vec<_> = request.headers().iter().collect();
    format!("{} {} {fields:?}", request.method(), request.uri())
}

/// The fields of an answer, of which some are always the same.
fn fields(path: &str) -> HeaderMap {
    let mut fields = HeaderMap::new();
    for (name, value) in [
        ("content-type", "text/plain"),
        ("set-cookie", "a=1"),
        ("set-cookie", path),
        ("set-cookie", "b=2"),
        ("x-path", path),
    ] {
        fields.append(name, value.parse().unwrap());
    }
    fields
}

/// The answer to a request: its status, its fields and its body.
async fn ask(
    requests: &mut Requests,
    request: Request<()>,
) -> Result<(u16, HeaderMap, String), StreamError> {
    let mut stream = requests.send_request(request).await?;
    stream.finish().await?;
    let response = stream.recv_response().await?;
    let mut body = Vec::new();
    while let Some(mut piece) = stream.recv_data().await? {
        body.extend_from_slice(&piece.copy_to_bytes(piece.remaining()));
    }
    let status = response.status().as_u16();
    Ok((status, response.headers().clone(), String::from_utf8(body).unwrap()))
}

fn request(path: &str, field: &str) -> Request<()> {
    let request = Request::get(format!("https://localhost{path}"));
    request.header("user-agent", "a test").header("x-field", field).body(()).unwrap()
}

#[tokio::test]
async fn requests_and_answers_that_are_alike_are_what_they_were() {
    let mut requests = client().await;
    for round in 0..6 {
        for path in ["/", "/a", "/b?c=d", &format!("/{round}")] {
            for field in ["same", &format!("round {round}")] {
                let mut request = request(path, field);
                if round == 5 {
                    request.headers_mut().insert("x-apart", "yes".parse().unwrap());
                }
                let expected = said(&request);
                let (status, came, body) = ask(&mut requests, request).await.unwrap();
                assert_eq!((status, body), (203, expected));
                let sent = fields(path.split('?').next().unwrap());
                assert_eq!(came, sent);
            }
        }
    }
}

#[tokio::test]
async fn what_was_asked_three_times_is_known() {
    let mut requests = client().await;
    let mut known = Vec::new();
    for _ in 0..6 {
        known.push(ask(&mut requests, request("/known", "same")).await.unwrap().2);
        // Others are not.
        let other = request("/known", &format!("other {}", known.len()));
        assert_eq!(ask(&mut requests, other).await.unwrap().2, "false");
    }
    assert_eq!(known, ["false", "false", "false", "true", "true", "true"]);
}

/// RFC 9114, Section 4.2.2.
#[tokio::test]
async fn a_path_that_is_too_long_is_refused_however_known_the_rest_is() {
    let mut requests = client().await;
    // In Huffman's code it is shorter than the limit.
    let long = format!("/{}", "a".repeat(MAX_SECTION));
    for _ in 0..4 {
        assert_eq!(ask(&mut requests, request("/", "same")).await.unwrap().0, 203);
        // The server says 431, and that it reads no more, of which the client hears one or both.
        let refused = ask(&mut requests, request(&long, "same")).await;
        assert!(refused.as_ref().map_or(true, |(status, ..)| *status == 431), "{refused:?}");
    }
}

#[tokio::test]
async fn many_requests_at_once_are_told_apart() {
    let requests = client().await;
    let asking = (0..200).map(|number| {
        let mut requests = requests.clone();
        tokio::spawn(async move {
            let request = request(&format!("/{number}"), "same");
            let expected = said(&request);
            assert_eq!(ask(&mut requests, request).await.unwrap().2, expected);
        })
    });
    for asked in asking.collect::<Vec<_>>() {
        asked.await.unwrap();
    }
}
