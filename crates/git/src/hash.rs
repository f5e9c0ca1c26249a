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
        let (header, len) = object_header(kind, size);
        hasher.update(header.get(..len).unwrap_or_default());
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

/// The longest header: the longest kind, a space, 20 digits, NUL.
const OBJECT_HEADER_LEN_MAX: usize = 6 + 1 + 20 + 1;

/// `<kind> SP <size> NUL` at the start of the array, and its length; without allocating, for every object needs one.
fn object_header(kind: ObjectKind, size: u64) -> ([u8; OBJECT_HEADER_LEN_MAX], usize) {
    let digits = size.checked_ilog10().unwrap_or(0) as usize + 1;
    let name = kind.name().as_bytes();
    let digits_end = name.len() + 1 + digits;
    let mut header = [0u8; OBJECT_HEADER_LEN_MAX];
    for (slot, byte) in header.iter_mut().zip(name.iter().chain(b" ")) {
        *slot = *byte;
    }
    let mut rest = size;
    for slot in header.iter_mut().take(digits_end).rev().take(digits) {
        *slot = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    (header, digits_end + 1)
}

/// The id of an object held whole in memory.
pub fn object_id(format: ObjectFormat, kind: ObjectKind, content: &[u8]) -> Result<ObjectId, CollisionAttack> {
    let mut hasher = ObjectHasher::new(format, kind, content.len() as u64);
    hasher.update(content);
    hasher.finish()
}

/// The id that an object's content gives, without a look for collision attacks: for content that was checked when it came
/// in, and may only have been damaged since. Twice as fast as [`object_id`].
pub fn object_checksum(format: ObjectFormat, kind: ObjectKind, content: &[u8]) -> ObjectId {
    let (header, len) = object_header(kind, content.len() as u64);
    let mut checksum = Checksum::new(format);
    checksum.update(header.get(..len).unwrap_or_default());
    checksum.update(content);
    checksum.finish()
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

/// HMAC (RFC 2104) over the plain hash of a format, as git makes the nonces of signed pushes.
pub fn hmac(format: ObjectFormat, key: &[u8], text: &[u8]) -> ObjectId {
    let digest = |parts: [&[u8]; 2]| {
        let mut checksum = Checksum::new(format);
        parts.iter().for_each(|part| checksum.update(part));
        checksum.finish()
    };
    let short;
    let key = if key.len() > HMAC_BLOCK_LEN {
        short = digest([key, b""]);
        short.as_bytes()
    } else {
        key
    };
    let pad = |with: u8| {
        let mut block = [with; HMAC_BLOCK_LEN];
        block.iter_mut().zip(key).for_each(|(byte, key)| *byte ^= key);
        block
    };
    let inner = digest([&pad(0x36), text]);
    digest([&pad(0x5c), inner.as_bytes()])
}

/// Bytes in a block of SHA-1 and of SHA-256.
const HMAC_BLOCK_LEN: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hmac_is_that_of_the_rfcs() {
        // RFC 2202 and RFC 4231, test cases 2 and 6.
        let (jefe, text) = (b"Jefe", b"what do ya want for nothing?");
        let sha1 = hmac(ObjectFormat::Sha1, jefe, text).to_string();
        assert_eq!(sha1, "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79");
        let sha256 = hmac(ObjectFormat::Sha256, jefe, text).to_string();
        assert_eq!(
            sha256,
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
        let long = b"Test Using Larger Than Block-Size Key - Hash Key First";
        assert_eq!(
            hmac(ObjectFormat::Sha1, &[0xaa; 80], long).to_string(),
            "aa4ae5e15272d00e95705637ce8a3b55ed402112"
        );
        assert_eq!(
            hmac(ObjectFormat::Sha256, &[0xaa; 131], long).to_string(),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"
        );
    }

    // The beginnings of two files with one SHA-1, published in 2017 (shattered.io): 192 bytes, then 128 that differ.
    const PREFIX: &str = "255044462d312e330a25e2e3cfd30a0a0a312030206f626a0a3c3c2f57696474\
        682032203020522f4865696768742033203020522f547970652034203020522f\
        537562747970652035203020522f46696c7465722036203020522f436f6c6f72\
        53706163652037203020522f4c656e6774682038203020522f42697473506572\
        436f6d706f6e656e7420383e3e0a73747265616d0affd8fffe00245348412d31\
        20697320646561642121212121852fec092339759c39b1a1c63c4c97e1fffe01";
    const BLOCKS: [&str; 2] = [
        "7346dc9166b67e118f029ab621b2560ff9ca67cca8c7f85ba84c79030c2b3de2\
        18f86db3a90901d5df45c14f26fedfb3dc38e96ac22fe7bd728f0e45bce046d2\
        3c570feb141398bb552ef5a0a82be331fea48037b8b5d71f0e332edf93ac3500\
        eb4ddc0decc1a864790c782c76215660dd309791d06bd0af3f98cda4bc4629b1",
        "7f46dc93a6b67e013b029aaa1db2560b45ca67d688c7f84b8c4c791fe02b3df6\
        14f86db1690901c56b45c1530afedfb76038e972722fe7ad728f0e4904e046c2\
        30570fe9d41398abe12ef5bc942be33542a4802d98b5d70f2a332ec37fac3514\
        e74ddc0f2cc1a874cd0c78305a21566461309789606bd0bf3f98cda8044629a1",
    ];

    fn bytes(hex: &str) -> Vec<u8> {
        let digits = hex.as_bytes().as_chunks::<2>().0;
        digits
            .iter()
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
            .collect()
    }

    #[test]
    fn a_collision_attack_is_refused() {
        for block in BLOCKS {
            let mut hasher = ObjectHasher(State::Sha1(sha1dc::Hasher::default()));
            hasher.update(&bytes(PREFIX));
            hasher.update(&bytes(block));
            let CollisionAttack(oid) = hasher.finish().unwrap_err();
            assert_eq!(oid.to_string(), "f92d74e3874587aaf443d1db961d4e26dde13e9c");
        }
    }

    #[test]
    fn ids_are_those_of_git() {
        use ObjectFormat::{Sha1, Sha256};
        use ObjectKind::{Blob, Tree};
        let table = [
            (Sha1, Blob, &b""[..], "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"),
            (Sha1, Tree, b"", "4b825dc642cb6eb9a060e54bf8d69288fbee4904"),
            (Sha1, Blob, b"hello world\n", "3b18e512dba79e4c8300dd08aeb37f8e728b8dad"),
            (
                Sha256,
                Blob,
                b"",
                "473a0f4c3be8a93681a267e3b1e9a7dcda1185436fe141f7749120a303721813",
            ),
            (
                Sha256,
                Tree,
                b"",
                "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321",
            ),
        ];
        for (format, kind, content, expected) in table {
            assert_eq!(object_id(format, kind, content).unwrap().to_string(), expected);
        }
    }

    #[test]
    fn headers_of_every_length() {
        for kind in [ObjectKind::Commit, ObjectKind::Tree, ObjectKind::Blob, ObjectKind::Tag] {
            for size in (0..64)
                .flat_map(|bit| [(1u64 << bit) - 1, 1 << bit])
                .chain((0..20).map(|n| 10u64.pow(n)))
                .chain([u64::MAX])
            {
                let (header, len) = object_header(kind, size);
                assert_eq!(&header[..len], format!("{kind} {size}\0").as_bytes());
            }
        }
    }

    #[test]
    fn a_checksum_is_the_plain_hash() {
        let mut checksum = Checksum::new(ObjectFormat::Sha1);
        checksum.update(&bytes(PREFIX));
        checksum.update(&bytes(BLOCKS[0]));
        assert_eq!(
            checksum.finish().to_string(),
            "f92d74e3874587aaf443d1db961d4e26dde13e9c"
        );
    }
}
