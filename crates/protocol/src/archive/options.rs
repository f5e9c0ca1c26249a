//! The command line of git-archive(1), read as git's option parser reads it.

use crate::ProtocolError;
use crate::error::quote;
use bytes::Bytes;

/// The names of formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArchiveName {
    /// `tar`.
    Tar,
    /// `tgz`.
    Tgz,
    /// `tar.gz`.
    TarGz,
    /// `zip`.
    Zip,
}

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArchiveCommand {
    /// The names of the formats.
    List,
    /// An archive.
    Archive(ArchiveOptions),
}

/// What archive is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchiveOptions {
    /// The format.
    pub format: ArchiveName,
    /// The level of compression, 0 to 9.
    pub level: Option<u32>,
    /// What goes before every path.
    pub prefix: Bytes,
    /// Whether paths are to be told.
    pub verbose: bool,
    /// The time of all files, as it came.
    pub mtime: Option<Bytes>,
    /// What is to be archived: a ref, perhaps with `:path`.
    pub treeish: Bytes,
    /// Pathspecs, as they came.
    pub paths: Vec<Bytes>,
}

impl ArchiveName {
    /// All of them, in git's order.
    pub const ALL: [Self; 4] = [Self::Tar, Self::Tgz, Self::TarGz, Self::Zip];

    /// As it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tar => "tar",
            Self::Tgz => "tgz",
            Self::TarGz => "tar.gz",
            Self::Zip => "zip",
        }
    }
}

/// An option of the command line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Name {
    Format,
    Prefix,
    AddFile,
    AddVirtualFile,
    Output,
    WorktreeAttributes,
    Verbose,
    Mtime,
    List,
    Remote,
    Exec,
}

const LONG: [(&str, Name); 11] = [
    ("format", Name::Format),
    ("prefix", Name::Prefix),
    ("add-file", Name::AddFile),
    ("add-virtual-file", Name::AddVirtualFile),
    ("output", Name::Output),
    ("worktree-attributes", Name::WorktreeAttributes),
    ("verbose", Name::Verbose),
    ("mtime", Name::Mtime),
    ("list", Name::List),
    ("remote", Name::Remote),
    ("exec", Name::Exec),
];

impl Name {
    const fn takes_value(self) -> bool {
        !matches!(self, Self::WorktreeAttributes | Self::Verbose | Self::List)
    }
}

#[derive(Default)]
struct Parsed {
    format: Option<Bytes>,
    prefix: Bytes,
    level: Option<u64>,
    verbose: bool,
    list: bool,
    mtime: Option<Bytes>,
    forbidden: Option<Name>,
    positional: Vec<Bytes>,
}

impl ArchiveCommand {
    /// Reads the arguments of a remote client; `allowed` are the formats that it may have.
    pub fn parse(arguments: Vec<Bytes>, allowed: &[ArchiveName]) -> Result<Self, ProtocolError> {
        let mut parsed = Parsed::default();
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            match &argument[..] {
                b"--" | b"--end-of-options" => {
                    parsed.positional.extend(arguments);
                    break;
                }
                [b'-', b'-', ..] => parsed.long(&argument.slice(2..), &mut arguments)?,
                [b'-', _, ..] => parsed.short(&argument.slice(1..), &mut arguments)?,
                _ => parsed.positional.push(argument),
            }
        }
        parsed.command(allowed)
    }
}

impl Parsed {
    fn long(&mut self, text: &Bytes, more: &mut impl Iterator<Item = Bytes>) -> Result<(), ProtocolError> {
        let equals = text.iter().position(|byte| *byte == b'=');
        let (key, value) = match equals {
            Some(at) => (text.slice(..at), Some(text.slice(at + 1..))),
            None => (text.clone(), None),
        };
        let (name, negated) = long_name(&key)?;
        if negated {
            if value.is_some() {
                return Err(usage(&format!("option `{}' takes no value", quote(&key))));
            }
            self.unset(name);
            return Ok(());
        }
        if !name.takes_value() {
            if value.is_some() {
                return Err(usage(&format!("option `{}' takes no value", quote(&key))));
            }
            self.set(name, Bytes::new());
            return Ok(());
        }
        let value = value.or_else(|| more.next());
        let value = value.ok_or_else(|| usage(&format!("option `{}' requires a value", quote(&key))))?;
        self.set(name, value);
        Ok(())
    }

    /// Letters that stand together, and numbers.
    fn short(&mut self, text: &Bytes, more: &mut impl Iterator<Item = Bytes>) -> Result<(), ProtocolError> {
        let mut at = 0;
        while let Some(letter) = text.get(at) {
            at += 1;
            match letter {
                b'v' => self.verbose = true,
                b'l' => self.list = true,
                b'o' => {
                    if at == text.len() && more.next().is_none() {
                        return Err(usage("switch `o' requires a value"));
                    }
                    self.forbidden.get_or_insert(Name::Output);
                    return Ok(());
                }
                b'0'..=b'9' => {
                    let rest = text.get(at - 1..).unwrap_or_default();
                    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit());
                    let (count, number) = digits.fold((0, 0u64), |(count, number), digit| {
                        (
                            count + 1,
                            number.saturating_mul(10).saturating_add(u64::from(digit - b'0')),
                        )
                    });
                    self.level = Some(number);
                    at += count - 1;
                }
                letter => return Err(usage(&format!("unknown switch `{}'", quote(&[*letter])))),
            }
        }
        Ok(())
    }

    fn set(&mut self, name: Name, value: Bytes) {
        match name {
            Name::Format => self.format = Some(value),
            Name::Prefix => self.prefix = value,
            Name::Mtime => self.mtime = Some(value),
            Name::Verbose => self.verbose = true,
            Name::List => self.list = true,
            _ => {
                self.forbidden.get_or_insert(name);
            }
        }
    }

    fn unset(&mut self, name: Name) {
        match name {
            Name::Format => self.format = None,
            Name::Prefix => self.prefix = Bytes::new(),
            Name::Verbose => self.verbose = false,
            Name::List => self.list = false,
            name if self.forbidden == Some(name) => self.forbidden = None,
            _ => {}
        }
    }

    fn command(self, allowed: &[ArchiveName]) -> Result<ArchiveCommand, ProtocolError> {
        if let Some(name) = self.forbidden {
            return Err(forbidden(name));
        }
        let mut positional = self.positional.into_iter();
        let first = positional.next();
        if self.list {
            return match first {
                Some(extra) => Err(ProtocolError::refused("extra command line parameter ", &extra)),
                None => Ok(ArchiveCommand::List),
            };
        }
        let treeish = first.ok_or_else(|| usage("no tree-ish is named"))?;
        let format = self.format.unwrap_or(Bytes::from_static(b"tar"));
        let known = allowed.iter().copied().find(|name| *name.name().as_bytes() == *format);
        let known = known.ok_or_else(|| ProtocolError::refused("Unknown archive format ", &format))?;
        Ok(ArchiveCommand::Archive(ArchiveOptions {
            format: known,
            level: level(self.level, known)?,
            prefix: self.prefix,
            verbose: self.verbose,
            mtime: self.mtime,
            treeish,
            paths: positional.collect(),
        }))
    }
}

/// Tar is not compressed; nothing is to more than level 9.
fn level(level: Option<u64>, format: ArchiveName) -> Result<Option<u32>, ProtocolError> {
    let Some(level) = level else { return Ok(None) };
    let fits = u32::try_from(level)
        .ok()
        .filter(|level| *level <= 9 && format != ArchiveName::Tar);
    let refusal = || {
        let format = format.name();
        ProtocolError::Refused(format!("Argument not supported for format '{format}': -{level}"))
    };
    fits.map(Some).ok_or_else(refusal)
}

/// The option of a name or of the beginning of one, perhaps behind `no-`.
fn long_name(key: &[u8]) -> Result<(Name, bool), ProtocolError> {
    let positive = LONG.map(|(text, name)| (text.to_owned(), name, false));
    // git: `--mtime` cannot be taken back.
    let negative = LONG.into_iter().filter(|(_, name)| *name != Name::Mtime);
    let negative = negative.map(|(text, name)| (format!("no-{text}"), name, true));
    let all: Vec<_> = positive.into_iter().chain(negative).collect();
    if let Some((_, name, negated)) = all.iter().find(|(text, ..)| text.as_bytes() == key) {
        return Ok((*name, *negated));
    }
    let mut beginning = all
        .iter()
        .filter(|(text, ..)| text.as_bytes().starts_with(key) && !key.is_empty());
    match (beginning.next(), beginning.next()) {
        (Some((_, name, negated)), None) => Ok((*name, *negated)),
        (Some((one, ..)), Some((other, ..))) => Err(usage(&format!(
            "ambiguous option: {} (could be --{one} or --{other})",
            quote(key)
        ))),
        (None, _) => Err(usage(&format!("unknown option `{}'", quote(key)))),
    }
}

fn usage(text: &str) -> ProtocolError {
    ProtocolError::Refused(text.to_owned())
}

fn forbidden(name: Name) -> ProtocolError {
    let text = match name {
        Name::AddFile | Name::AddVirtualFile => "options '--add-file' and '--remote' cannot be used together",
        Name::WorktreeAttributes => "options '--worktree-attributes' and '--remote' cannot be used together",
        Name::Exec => "the option '--exec' requires '--remote'",
        Name::Output => "Unexpected option --output",
        _ => "Unexpected option --remote",
    };
    ProtocolError::Refused(text.to_owned())
}
