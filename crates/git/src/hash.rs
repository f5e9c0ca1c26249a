//! Hashing: object ids with SHA-1 collision detection, and plain checksums for pack trailers.

use crate::{ObjectFormat, ObjectId, ObjectKind};
use sha2::Digest as _;

/// The bytes hashed carry the marks of a SHA-1 collision attack; git refuses such an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("SHA-1 appears to be part of a collision attack: {0}")]
pub struct CollisionAttack(pub ObjectId);

/// Hashes one object as it streams by; detects SHA-1 collision attacks as git does.
pub struct ObjectHasher(State);

// sha1dc's state is ten times that of SHA-256; boxing it would cost an allocation for every object hashed.
#[allow(clippy::large_enum_variant)]
enum State {
    Sha1(sha1dc::Hasher),
    Sha256(sha2::Sha256),
}

impl ObjectHasher {
    /// Starts an object of `size` bytes: hashes git's header `<kind> SP <size> NUL`.
    pub fn new(format: ObjectFormat, kind: ObjectKind, size: u64) -> Self {
        let mut hasher = Self(match format {
            ObjectFormat::Sha1 => State::Sha1(sha1dc::Hasher::default()),
            ObjectFormat::Sha256 => State::Sha256(sha2::Sha256::new()),
        });
        hasher.update(format!("{kind} {size}\0").as_bytes());
        hasher
    }

    /// Hashes the next bytes of the object's content.
    pub fn update(&mut self, bytes: &[u8]) {
        match &mut self.0 {
            State::Sha1(hasher) => hasher.update(bytes),
            State::Sha256(hasher) => hasher.update(bytes),
        }
    }

    /// The id of what was hashed.
    pub fn finish(self) -> Result<ObjectId, CollisionAttack> {
        match self.0 {
            State::Sha1(hasher) => match hasher.finalize() {
                Ok(digest) => Ok(ObjectId::Sha1(digest.into())),
                Err(collision) => Err(CollisionAttack(ObjectId::Sha1(collision.digest().into()))),
            },
            State::Sha256(hasher) => Ok(ObjectId::Sha256(hasher.finalize().into())),
        }
    }
}

/// The id of an object held whole in memory.
pub fn object_id(format: ObjectFormat, kind: ObjectKind, content: &[u8]) -> Result<ObjectId, CollisionAttack> {
    let mut hasher = ObjectHasher::new(format, kind, content.len() as u64);
    hasher.update(content);
    hasher.finish()
}

/// The plain checksum that ends packs and indexes: no collision detection, for it protects against accidents only.
pub struct Checksum(Plain);

enum Plain {
    Sha1(sha1::Sha1),
    Sha256(sha2::Sha256),
}

impl Checksum {
    /// An empty checksum of the format's hash.
    pub fn new(format: ObjectFormat) -> Self {
        Self(match format {
            ObjectFormat::Sha1 => Plain::Sha1(sha1::Sha1::default()),
            ObjectFormat::Sha256 => Plain::Sha256(sha2::Sha256::default()),
        })
    }

    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        match &mut self.0 {
            Plain::Sha1(hasher) => sha1::Digest::update(hasher, bytes),
            Plain::Sha256(hasher) => hasher.update(bytes),
        }
    }

    /// The checksum, as wide as an id of the format.
    pub fn finish(self) -> ObjectId {
        match self.0 {
            Plain::Sha1(hasher) => ObjectId::Sha1(sha1::Digest::finalize(hasher).into()),
            Plain::Sha256(hasher) => ObjectId::Sha256(hasher.finalize().into()),
        }
    }
}
