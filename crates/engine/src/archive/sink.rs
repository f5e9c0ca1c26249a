//! Where an archive's parts go: a tar, perhaps through gzip, or a zip.

use super::tar::Tar;
use super::walk::Item;
use super::zip::Zip;
use super::{ArchiveFormat, ArchiveRequest};
use crate::EngineError;
use cuesta_git::ObjectId;
use cuesta_git::zlib::{Crc32, StreamDeflater, ZlibError};

/// zlib's own choice.
pub(super) const LEVEL_DEFAULT: u32 = 6;

/// One archive being written. What is ready of it is in `out`.
pub(super) struct Sink {
    form: Form,
    gzip: Option<Gzip>,
    prefix: Vec<u8>,
    out: Vec<u8>,
}

enum Form {
    Tar(Tar),
    Zip(Box<Zip>),
}

impl Sink {
    pub(super) fn new(request: &ArchiveRequest) -> Self {
        let commit = request.target.commit.as_ref();
        let mut out = Vec::new();
        let form = match request.format {
            ArchiveFormat::Zip => Form::Zip(Box::new(Zip::new(request.time, request.level, commit))),
            _ => Form::Tar(Tar::begin(&mut out, request.time, request.umask, commit)),
        };
        let gzip = (request.format == ArchiveFormat::TarGz).then(|| Gzip::new(request.level));
        Self {
            form,
            gzip,
            prefix: request.prefix.to_vec(),
            out,
        }
    }

    /// The path of an item in the archive.
    pub(super) fn path(&self, item: &Item) -> Vec<u8> {
        [&self.prefix, &item.path[..]].concat()
    }

    /// Appends the directory that the prefix names, if it names one; gives back its path.
    pub(super) fn prefix_directory(&mut self, tree: &ObjectId) -> Result<Option<Vec<u8>>, EngineError> {
        if !self.prefix.ends_with(b"/") {
            return Ok(None);
        }
        let bare = self
            .prefix
            .iter()
            .rposition(|byte| *byte != b'/')
            .map_or(0, |at| at + 1);
        let path = self.prefix.get(..bare + 1).unwrap_or_default().to_vec();
        self.directory(&path, 0o777, tree)?;
        Ok(Some(path))
    }

    pub(super) fn directory(&mut self, path: &[u8], mode: u32, oid: &ObjectId) -> Result<(), EngineError> {
        match &mut self.form {
            Form::Tar(tar) => tar.directory(&mut self.out, path, mode, oid),
            Form::Zip(zip) => zip.directory(&mut self.out, path)?,
        }
        Ok(())
    }

    /// Appends an item with its content; directories and submodules have none.
    pub(super) fn item(&mut self, item: &Item, content: &[u8]) -> Result<(), EngineError> {
        let path = self.path(item);
        if !item.mode.is_blob() {
            return self.directory(&path, item.mode.0, &item.oid);
        }
        match &mut self.form {
            Form::Tar(tar) if item.mode.is_symlink() => tar.link(&mut self.out, &path, item, content),
            Form::Tar(tar) => {
                tar.file(&mut self.out, &path, item, content.len() as u64);
                tar.content(&mut self.out, content);
            }
            Form::Zip(zip) => zip.whole(&mut self.out, &path, item, content)?,
        }
        Ok(())
    }

    /// Begins a file whose content comes piece by piece.
    pub(super) fn begin(&mut self, item: &Item, size: u64) {
        let path = self.path(item);
        match &mut self.form {
            Form::Tar(tar) => tar.file(&mut self.out, &path, item, size),
            Form::Zip(zip) => zip.stream(&mut self.out, &path, item, size),
        }
    }

    pub(super) fn piece(&mut self, content: &[u8]) -> Result<(), EngineError> {
        match &mut self.form {
            Form::Tar(tar) => tar.content(&mut self.out, content),
            Form::Zip(zip) => zip.piece(&mut self.out, content)?,
        }
        Ok(())
    }

    pub(super) fn end_file(&mut self) -> Result<(), EngineError> {
        match &mut self.form {
            Form::Tar(_) => Ok(()),
            Form::Zip(zip) => zip.end_stream(&mut self.out),
        }
    }

    /// Appends the end of the archive.
    pub(super) fn end(&mut self) -> Result<(), EngineError> {
        match &mut self.form {
            Form::Tar(tar) => tar.end(&mut self.out),
            Form::Zip(zip) => zip.end(&mut self.out),
        }
        if let Some(gzip) = self.gzip.take() {
            self.out = gzip.end(&self.out).map_err(failed)?;
        }
        Ok(())
    }

    /// What is ready.
    pub(super) fn take(&mut self) -> Result<Vec<u8>, EngineError> {
        let out = std::mem::take(&mut self.out);
        match &mut self.gzip {
            Some(gzip) => gzip.compress(&out).map_err(failed),
            None => Ok(out),
        }
    }
}

fn failed(_: ZlibError) -> EngineError {
    EngineError::Internal("zlib could not compress")
}

/// A gzip stream, without name and time, so that the same tree gives the same bytes (RFC 1952).
struct Gzip {
    deflater: StreamDeflater,
    crc: Crc32,
    /// Modulo 2^32, as gzip counts.
    size: u32,
    header: Vec<u8>,
}

impl Gzip {
    fn new(level: Option<u32>) -> Self {
        const UNIX: u8 = 3;
        let level = level.unwrap_or(LEVEL_DEFAULT);
        // As zlib says it: 4 for fast, 2 for best.
        let effort = match level {
            9.. => 2,
            0 | 1 => 4,
            _ => 0,
        };
        Self {
            deflater: StreamDeflater::raw(level),
            crc: Crc32::new(),
            size: 0,
            header: vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, effort, UNIX],
        }
    }

    fn compress(&mut self, bytes: &[u8]) -> Result<Vec<u8>, ZlibError> {
        let mut out = std::mem::take(&mut self.header);
        self.crc.update(bytes);
        // Modulo 2^32 on purpose.
        self.size = self.size.wrapping_add(bytes.len() as u32);
        self.deflater.deflate(bytes, &mut out)?;
        Ok(out)
    }

    fn end(mut self, bytes: &[u8]) -> Result<Vec<u8>, ZlibError> {
        let mut out = self.compress(bytes)?;
        self.deflater.finish(&mut out)?;
        out.extend_from_slice(&self.crc.value().to_le_bytes());
        out.extend_from_slice(&self.size.to_le_bytes());
        Ok(out)
    }
}
