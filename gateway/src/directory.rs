//! Files as answers.

use std::io;
use std::path::Path;
use std::sync::Arc;

use http::Response;
use http::request::Parts;
use quicket_files::{Asked, Descriptors, Options, Room, Tree, ask};

use crate::Body;

/// Large pieces, of 256 KiB each, that are read before they are sent, of all clients of a directory together.
/// Each download holds a small one beside, of 16 KiB.
const MAX_PIECES: usize = 128;

/// A directory whose files can be had.
#[derive(Debug)]
pub(crate) struct Directory {
    tree: Arc<Tree>,
    descriptors: Descriptors,
    room: Room,
}

impl Directory {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let options = Options { precompressed: true, ..Options::default() };
        let tree = Arc::new(Tree::open(path, options)?);
        let room = Room::new(MAX_PIECES);
        Ok(Self { tree, descriptors: Descriptors::default(), room })
    }

    /// Answers with the file at `path`.
    pub(crate) async fn answer(&self, request: &Parts, path: &str) -> io::Result<Response<Body>> {
        let (method, headers) = (request.method.clone(), request.headers.clone());
        let asked = Asked { method, path: path.to_owned(), headers, early: false };
        Ok(ask(&self.tree, &self.descriptors, asked).await?.into_response(&self.room))
    }
}
