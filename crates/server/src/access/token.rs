//! The text of a personal access token: `cuesta_`, 43 random letters and digits (256 bits), and six that check them.
//!
//! The prefix lets scanners find tokens where they do not belong; the check tells a typing error without a look-up. Only the
//! SHA-256 of the text is kept: of 256 random bits nobody guesses the origin, so no slow hash is needed.

use cuesta_format::{TokenId, TokenRecord};
use cuesta_store::Entropy;
use sha2::{Digest, Sha256};
use std::fmt;
use subtle::ConstantTimeEq;

const PREFIX: &str = "cuesta_";
const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// 62^43 > 2^256.
const RANDOM_LEN: usize = 43;
/// 62^6 > 2^32.
const CHECK_LEN: usize = 6;

/// A token's text: well-formed, not necessarily anybody's. Never shown by `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct TokenText(String);

impl TokenText {
    /// A new token.
    pub fn random(entropy: &Entropy) -> Self {
        let mut random = String::with_capacity(RANDOM_LEN);
        while random.len() < RANDOM_LEN {
            let letters = entropy.bits128().to_le_bytes().into_iter().filter_map(letter);
            random.extend(letters.take(RANDOM_LEN - random.len()));
        }
        let check = check(&random);
        Self(format!("{PREFIX}{random}{check}"))
    }

    /// Reads a token as a client sends it; `None` if it cannot be one.
    pub fn parse(text: &str) -> Option<Self> {
        let body = text.strip_prefix(PREFIX)?;
        let (random, given) = body.split_at_checked(RANDOM_LEN)?;
        let well_formed = body.bytes().all(|byte| byte.is_ascii_alphanumeric());
        (well_formed && given == check(random)).then(|| Self(text.to_owned()))
    }

    /// SHA-256 of the text: what is kept of it.
    pub fn digest(&self) -> [u8; 32] {
        Sha256::digest(self.0.as_bytes()).into()
    }

    /// The token's public name.
    pub fn id(&self) -> TokenId {
        TokenId::of(&self.digest())
    }

    /// Whether the record is of this token. Takes the same time however much of the digest agrees.
    pub fn is_of(&self, record: &TokenRecord) -> bool {
        self.digest().ct_eq(&record.digest).into()
    }

    /// The text, to be shown once to whom it is for.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for TokenText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenText(hidden)")
    }
}

/// The letter of a random byte; the last few bytes have none, so that every letter is as likely.
fn letter(byte: u8) -> Option<char> {
    let in_range = usize::from(byte) < 4 * ALPHABET.len();
    let letter = ALPHABET.get(usize::from(byte) % ALPHABET.len())?;
    in_range.then(|| char::from(*letter))
}

/// CRC-32C of the random part in base 62, most significant digit first.
fn check(random: &str) -> String {
    let mut rest = crc32c::crc32c(random.as_bytes()) as usize;
    let mut digits = [b'0'; CHECK_LEN];
    for digit in digits.iter_mut().rev() {
        *digit = ALPHABET.get(rest % ALPHABET.len()).copied().unwrap_or(b'0');
        rest /= ALPHABET.len();
    }
    digits.into_iter().map(char::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn tokens_are_well_formed_and_never_twice() {
        let entropy = Entropy::system();
        let tokens: Vec<_> = (0..200).map(|_| TokenText::random(&entropy)).collect();
        for token in &tokens {
            let text = token.reveal();
            assert_eq!(text.len(), 56, "{text}");
            assert_eq!(TokenText::parse(text).as_ref(), Some(token));
            assert!(!format!("{token:?}").contains(&text[7..]));
        }
        let digests: HashSet<_> = tokens.iter().map(TokenText::digest).collect();
        assert_eq!(digests.len(), tokens.len());
        let letters: HashSet<char> = tokens.iter().flat_map(|token| token.reveal()[7..].chars()).collect();
        assert_eq!(letters.len(), 62);
    }

    #[test]
    fn every_typing_error_is_noticed() {
        let token = TokenText::random(&Entropy::seeded(1));
        let text = token.reveal();
        for at in 0..text.len() {
            let mut wrong: Vec<char> = text.chars().collect();
            wrong[at] = if wrong[at] == 'x' { 'y' } else { 'x' };
            assert_eq!(TokenText::parse(&wrong.into_iter().collect::<String>()), None, "{at}");
            assert_eq!(TokenText::parse(&text[..at]), None);
        }
        for other in [
            format!("{text}0"),
            format!(" {text}"),
            text.to_uppercase(),
            "cuesta_".to_owned() + &"é".repeat(49),
        ] {
            assert_eq!(TokenText::parse(&other), None, "{other}");
        }
    }

    #[test]
    fn the_id_is_what_sha256sum_begins_with() {
        let token = TokenText("abc".to_owned());
        assert_eq!(token.id().to_string(), "ba7816bf8f01cfea");
    }
}
