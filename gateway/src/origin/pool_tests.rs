//! A pool that may have one connection.

use std::sync::atomic::AtomicUsize;

use http::header::HOST;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

use super::super::empty;
use super::super::place::Place;
use super::*;
use crate::resolve::Resolve;

const PATIENCE: Duration = Duration::from_secs(20);

async fn pool(scheme: &str) -> (Arc<Pool>, TcpListener) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let place = Place::parse(&format!("{scheme}://{}", listener.local_addr().unwrap())).unwrap();
    (Pool::new(Dialer::new(&place, None, PATIENCE, &Resolve::default()), 1), listener)
}

async fn ask(pool: &Arc<Pool>, wanted: Wanted) -> Result<Response<Body>, Failed> {
    let request = Request::get("/").header(HOST, "a").body(()).unwrap();
    pool.send(&request.into_parts().0, empty(), (wanted, &Clock::now())).await
}

/// Reads a request.
async fn head(stream: &mut TcpStream) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    Ok(())
}

/// A server of HTTP/1.1 that answers all requests, and counts its connections.
fn answering(listener: TcpListener) -> Arc<AtomicUsize> {
    let accepted = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&accepted);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            count.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(async move {
                while head(&mut stream).await.is_ok() {
                    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
                    stream.write_all(answer).await.unwrap();
                }
            });
        }
    });
    accepted
}

#[tokio::test]
async fn an_idle_connection_makes_room_for_a_request_that_needs_one_of_its_own() {
    let (pool, listener) = pool("http").await;
    let accepted = answering(listener);
    for (is_fresh, connections) in [(false, 1), (false, 1), (true, 2), (false, 2)] {
        let wanted = Wanted { is_fresh, ..Wanted::default() };
        let answer = timeout(PATIENCE / 2, ask(&pool, wanted)).await.unwrap().unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
        assert_eq!((accepted.load(Ordering::Relaxed), pool.seats().taken()), (connections, 1));
    }
}

/// Whatever a connection has come to, its seat is free once nobody needs it, though its server says and ends nothing.
#[tokio::test]
async fn a_request_that_is_given_up_leaves_its_seat_to_those_who_wait() {
    for scheme in ["http", "h2c"] {
        let (pool, listener) = pool(scheme).await;
        let held = tokio::select! {
            answer = ask(&pool, Wanted::default()) => panic!("{answer:?}"),
            held = async {
                let mut held = listener.accept().await.unwrap().0;
                // The preface of HTTP/2 has an empty line, too (RFC 9113, Section 3.4).
                head(&mut held).await.unwrap();
                let next = tokio::spawn({
                    let pool = Arc::clone(&pool);
                    async move { ask(&pool, Wanted::default()).await }
                });
                assert_eq!(pool.seats().taken(), 1);
                (held, next)
            } => held,
        };
        let next = timeout(PATIENCE / 2, listener.accept()).await;
        assert!(next.is_ok(), "{scheme}: the next one has a connection");
        assert_eq!(pool.seats().taken(), 1);
        held.1.abort();
        drop(next);
        let free = async {
            while pool.seats().taken() > 0 {
                sleep(Duration::from_millis(1)).await;
            }
        };
        assert!(timeout(PATIENCE / 2, free).await.is_ok(), "{scheme}");
    }
}

#[tokio::test]
async fn a_connection_that_cannot_be_made_leaves_its_seat() {
    let (pool, listener) = pool("http").await;
    drop(listener);
    for _ in 0..2 {
        assert!(matches!(ask(&pool, Wanted::default()).await, Err(Failed::Connection(_))));
        assert_eq!(pool.seats().taken(), 0);
    }
}
