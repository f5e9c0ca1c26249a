//! Names of Cuesta's own things: 128 random bits, written as 32 lower-case hex digits.

use std::fmt;

macro_rules! random_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u128);

        impl $name {
            /// The id written as 32 hex digits.
            pub fn from_hex(hex: &str) -> Option<Self> {
                let all_hex = hex.len() == 32 && hex.bytes().all(|digit| digit.is_ascii_hexdigit());
                all_hex.then(|| u128::from_str_radix(hex, 16).ok().map(Self)).flatten()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:032x}", self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    };
}

random_id! {
    /// Names a layer: its keys in the bucket are `<id>.pack` and `<id>.cue`.
    LayerId
}
random_id! {
    /// Names one edit, so that an append whose reply was lost can be recognised.
    EditId
}
random_id! {
    /// Names a log: a repository's (it stays when the repository is renamed), the directory, or the
    /// accounts.
    LogId
}

impl LogId {
    /// The log that holds the names of all repositories.
    pub const DIRECTORY: Self = Self(0);
    /// The log that holds users, their credentials and roles.
    pub const ACCOUNTS: Self = Self(1);
}
