//! The commands of Git that a client asks a server to run, over SSH and over `git://`.

/// The commands of Git that a server runs for a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Program {
    /// Serves fetches.
    UploadPack,
    /// Takes pushes.
    ReceivePack,
    /// Serves archives.
    UploadArchive,
}

impl Program {
    /// Every one of them.
    pub const ALL: [Self; 3] = [Self::UploadPack, Self::ReceivePack, Self::UploadArchive];

    /// The name in command lines and requests: `git-upload-pack`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::UploadPack => "git-upload-pack",
            Self::ReceivePack => "git-receive-pack",
            Self::UploadArchive => "git-upload-archive",
        }
    }
}
