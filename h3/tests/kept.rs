//! Sections that are used again, against h3's client.

use std::future::poll_fn;

use bytes::{Buf, Bytes};
use h3::client::SendRequest;
use h3::error::{Code, StreamError};
use h3::server::RequestStream;
use http::{HeaderMap, Method, Request, Response, Version};
use quicket::tokio::{Connection, Endpoint};
use quicket::{ClientConfig, ClientTls, Identity, ServerConfig, ServerTls};
use quicket_h3::{OpenStreams, RecvStream, WebSocket};

/// The longest section that the server takes, in bytes.
const MAX_SECTION: usize = 600;

type Requests = SendRequest<OpenStreams, Bytes>;

/// A client of a server that answers with what it was asked.
async fn client() -> Requests {
    connect().await.1
}

/// The same with its connection.
async fn connect() -> (Connection, Requests) {
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
    let connection = client.unwrap();
    let client = quicket_h3::Connection::client(connection.clone(), 1 << 16).with_websocket();
    let acceptance = client.acceptance();
    let (mut driver, requests) = h3::client::new(client).await.unwrap();
    tokio::spawn(async move { poll_fn(|cx| driver.poll_close(cx)).await });
    assert!(acceptance.takes_extended_connect().await);
    (connection, requests)
}

async fn serve(connection: Connection) {
    let transport = quicket_h3::Connection::server(connection, MAX_SECTION).with_kept_sections();
    let requests = transport.requests();
    let mut builder = h3::server::builder();
    builder.max_field_section_size(MAX_SECTION as u64).enable_extended_connect(true);
    let mut server = builder.build::<_, Bytes>(transport).await.unwrap();
    while let Ok(Some(resolver)) = server.accept().await {
        let transfer = requests.transfer(resolver.frame_stream.id()).unwrap();
        tokio::spawn(async move {
            let Ok((request, stream)) = quicket_h3::resolve(resolver, &transfer).await else {
                return;
            };
            assert_eq!(request.version(), Version::HTTP_3);
            let (mut sending, receiving) = stream.split();
            let (body, trailers) = rest(receiving).await;
            let path = request.uri().path();
            let said = match path {
                "/known" => transfer.was_known().to_string(),
                "/websocket" => request.extensions().get::<WebSocket>().is_some().to_string(),
                _ => said_with(&request, &body, trailers.as_ref()),
            };
            if !request.headers().contains_key("x-apart") {
                transfer.hold();
            }
            let statuses: &[u16] = if path == "/interim" { &[103, 203] } else { &[203] };
            for status in statuses {
                let mut head = Response::builder().status(*status).body(()).unwrap();
                *head.headers_mut() = fields(path);
                quicket_h3::respond(&mut sending, &transfer, head).await.unwrap();
            }
            if request.method() != Method::HEAD {
                sending.send_data(said.into()).await.unwrap();
            }
            sending.finish().await.unwrap();
        });
    }
}

/// What follows a request's head.
async fn rest(mut stream: RequestStream<RecvStream, Bytes>) -> (Vec<u8>, Option<HeaderMap>) {
    let mut body = Vec::new();
    while let Some(mut piece) = stream.recv_data().await.unwrap() {
        body.extend_from_slice(&piece.copy_to_bytes(piece.remaining()));
    }
    (body, stream.recv_trailers().await.unwrap())
}

/// What a request asks for.
fn said(request: &Request<()>) -> String {
    said_with(request, b"", None)
}

fn said_with(request: &Request<()>, body: &[u8], trailers: Option<&HeaderMap>) -> String {
    let fields: Vec<_> = request.headers().iter().collect();
    format!("{} {} {fields:?} {body:?} {trailers:?}", request.method(), request.uri())
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
    ask_with(requests, request, b"", None).await
}

/// The same of a request with a body and trailers. What comes before the answer has the same fields.
async fn ask_with(
    requests: &mut Requests,
    request: Request<()>,
    body: &'static [u8],
    trailers: Option<HeaderMap>,
) -> Result<(u16, HeaderMap, String), StreamError> {
    let mut stream = requests.send_request(request).await?;
    if !body.is_empty() {
        stream.send_data(Bytes::from_static(body)).await?;
    }
    if let Some(trailers) = trailers {
        stream.send_trailers(trailers).await?;
    }
    stream.finish().await?;
    let mut response = stream.recv_response().await?;
    while response.status().is_informational() {
        let first = response.headers().clone();
        response = stream.recv_response().await?;
        assert_eq!(response.headers(), &first);
    }
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

/// Known or not, and whatever was known before on the same connection.
#[tokio::test]
async fn bodies_trailers_and_methods_are_those_of_the_request() {
    let mut requests = client().await;
    for apart in [false, true] {
        for _ in 0..5 {
            assert_eq!(ask(&mut requests, request("/", "same")).await.unwrap().0, 203);
            for (method, body) in [(Method::POST, &b"a body"[..]), (Method::HEAD, b"")] {
                let mut request = request("/a", "same");
                *request.method_mut() = method.clone();
                if apart {
                    request.headers_mut().insert("x-apart", "yes".parse().unwrap());
                }
                let trailers = (method == Method::POST).then(|| fields("/trailers"));
                let expected = match method {
                    Method::HEAD => String::new(),
                    _ => said_with(&request, body, trailers.as_ref()),
                };
                let answer = ask_with(&mut requests, request, body, trailers).await.unwrap();
                assert_eq!(answer, (203, fields("/a"), expected));
            }
        }
    }
}

/// What is held has two heads in it, or they go out one after the other.
#[tokio::test]
async fn heads_before_the_answer_have_their_own_fields() {
    let mut requests = client().await;
    for round in 0..8 {
        let mut request = request("/interim", "same");
        if round > 3 {
            request.headers_mut().insert("x-apart", "yes".parse().unwrap());
        }
        let expected = (203, fields("/interim"), said(&request));
        assert_eq!(ask(&mut requests, request).await.unwrap(), expected);
    }
}

/// RFC 9220. Its section without the path could be that of a request that is known.
#[tokio::test]
async fn requests_for_websocket_are_told_from_those_that_are_known() {
    let mut requests = client().await;
    for _ in 0..5 {
        for wants in [false, true] {
            let mut request = request("/websocket", "same");
            if wants {
                quicket_h3::ask_for_websocket(&mut request);
            }
            let (status, _, said) = ask(&mut requests, request).await.unwrap();
            assert_eq!((status, said), (203, wants.to_string()));
        }
    }
}

/// RFC 9110, Section 7.1: these are the bytes that h3 reads for a request that is known, and by themselves a CONNECT to no
/// port.
#[tokio::test]
async fn what_stands_for_requests_that_are_known_is_no_request() {
    let (connection, mut requests) = connect().await;
    for _ in 0..5 {
        assert_eq!(ask(&mut requests, request("/", "same")).await.unwrap().0, 203);
        let mut stream = connection.open_bi().await.unwrap();
        stream.send().write_all(&[1, 6, 0, 0, 0xcf, 0x50, 1, b'a']).await.unwrap();
        stream.send().finish().unwrap();
        let refused = stream.recv().read_to_end(1000).await.unwrap_err();
        let code = format!("code {:#x}", Code::H3_MESSAGE_ERROR.value());
        assert!(format!("{refused:?}").contains(&code), "{refused:?}");
    }
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
