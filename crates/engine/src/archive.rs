//! Archives: a tree as a tar or zip file, made while it is read (git-archive(1)).
//!
//! [`resolve`] finds the tree, [`archive`] walks it and gives the file in pieces. Order, names, modes and, for tar, every
//! byte are those of stock git. Memory is bounded whatever the tree: contents are read in batches of a few MiB and larger
//! ones streamed, at most [`HELD_BYTES_MAX`] of trees are held, and a walk ends after [`ENTRIES_MAX`] entries, since a few
//! trees can stand for more paths than anyone has disk for. A reader that waits makes the walk wait.

mod abbreviate;
mod facts;
mod sink;
mod tar;
mod target;
mod walk;
mod writer;
mod zip;

pub use target::{Target, at_path, resolve};
pub use walk::{DEPTH_MAX, ENTRIES_MAX, HELD_BYTES_MAX};

use crate::{EngineError, View};
use bytes::Bytes;
use cuesta_git::pathspec::Pathspec;
use cuesta_git::{HiddenRefs, ObjectId};
use futures::stream::{BoxStream, StreamExt};
use walk::SelectedWalk;
use writer::Archiver;

/// The forms of an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArchiveFormat {
    /// ustar with pax headers where ustar is too narrow.
    Tar,
    /// The same, gzip'd.
    TarGz,
    /// Zip; with zip64 where it has to be.
    Zip,
}

/// What is asked for.
#[derive(Clone, Debug)]
pub struct ArchiveRequest {
    /// The form.
    pub format: ArchiveFormat,
    /// How hard to compress, 0 to 9; zlib's default if not said.
    pub level: Option<u32>,
    /// Goes before every path.
    pub prefix: Bytes,
    /// Which paths of the tree.
    pub paths: Pathspec,
    /// What is archived.
    pub target: Target,
    /// The time of every file, in seconds since 1970.
    pub time: i64,
    /// Mode bits that files of a tar do not get (`tar.umask`; git's default is 0002).
    pub umask: u32,
    /// Whether each path is told.
    pub verbose: bool,
    /// Refs that a substituted format must not tell of.
    pub hidden: HiddenRefs,
}

/// A piece of an archive on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArchivePiece {
    /// Bytes of the file.
    Data(Bytes),
    /// Paths that were just added, a line each, if they were asked for.
    Paths(Bytes),
}

/// The pieces of an archive.
pub type ArchiveStream = BoxStream<'static, Result<ArchivePiece, EngineError>>;

/// Begins an archive. Fails before the first piece if a pathspec means nothing in the tree, as git does; finding that out
/// costs a walk as far as the first match of each.
pub async fn archive(view: View, request: ArchiveRequest) -> Result<ArchiveStream, EngineError> {
    walk::check_paths(&view, request.target.tree, &request.paths).await?;
    let walk = SelectedWalk::new(view.clone(), request.target.tree, request.paths.clone()).await?;
    let archiver = Archiver::new(view, walk, request);
    let pieces = futures::stream::try_unfold(archiver, Archiver::next);
    let flat = pieces.map(|pieces| match pieces {
        Ok(pieces) => pieces.into_iter().map(Ok).collect(),
        Err(error) => vec![Err(error)],
    });
    Ok(flat.flat_map(futures::stream::iter).boxed())
}

fn missing(oid: &ObjectId) -> EngineError {
    EngineError::Refused(format!("cannot read '{oid}'"))
}
