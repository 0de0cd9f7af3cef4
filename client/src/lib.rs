//! What a client needs, in one place: requests over HTTP/3, and streams of private protocols, over connections that are
//! shared, resumed with 0-RTT, and follow this host from network to network.
//!
//! ```no_run
//! use quicket_client::{Body, Client, Config};
//!
//! # async fn example() -> Result<(), quicket_client::Error> {
//! let client = Client::new(Config::new().sessions_in("/var/lib/example/sessions")?);
//! let mut answer = client.get("https://example.org/large").await?;
//! while let Some(piece) = answer.data().await? {
//!     println!("{} bytes", piece.len());
//! }
//! // A body of which more is to come.
//! let (mut writer, body) = Body::channel();
//! let posting = tokio::spawn({
//!     let client = client.clone();
//!     async move { client.post("https://example.org/form", body).await }
//! });
//! writer.write("a part".into()).await;
//! writer.finish().await;
//! println!("{}", posting.await.unwrap()?.head().status());
//! // A protocol of one's own, over the same store of sessions.
//! let connection = client.connect("example.org", 4433, "chat").await?;
//! let stream = connection.open_bi().await.unwrap();
//! # drop(stream);
//! # Ok(())
//! # }
//! ```
//!
//! Redirects, cookies and other versions of HTTP are the program's business. A client works inside a tokio runtime with
//! I/O and time enabled. `docs/client.md` says what becomes of connections when the network changes.
#![forbid(unsafe_code)]

mod body;
mod client;
mod config;
mod dial;
mod error;
pub mod http3;
mod length;
mod origin;
mod pool;

pub use body::{Body, Writer};
pub use client::{Answer, Client};
pub use config::Config;
pub use error::Error;

pub use http;
pub use pool::MAX_CONNECTIONS;
pub use quicket;
