//! What a request shows of who sends it: the `Authorization` header (RFC 7617, RFC 6750).
//!
//! A token comes as the password of HTTP Basic or as a Bearer token; both are the same credential from here on. The user name
//! of Basic is not looked at, as at other hosts: the token says whose it is.

use super::token::TokenText;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use std::fmt;

/// Longest header that is looked at.
const HEADER_LEN_MAX: usize = 4096;
/// Longest user name that is counted; others count as this much of them.
const USER_LEN_MAX: usize = 64;

/// What a client has shown. Nothing of a token is shown by `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct Credential {
    /// The user name of Basic, at most 64 bytes of it, to count failures by. It proves nothing.
    pub claimed: Option<String>,
    /// The token, if what came can be one.
    pub token: Option<TokenText>,
}

/// A header that is no credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the authorization header is malformed")]
pub struct CredentialError;

impl Credential {
    /// The credential of a request; `None` if it has none.
    pub fn of(headers: &HeaderMap) -> Result<Option<Self>, CredentialError> {
        let mut values = headers.get_all(AUTHORIZATION).iter();
        let Some(value) = values.next() else {
            return Ok(None);
        };
        // Two could be read as different ones by a proxy and by us.
        if values.next().is_some() || value.len() > HEADER_LEN_MAX {
            return Err(CredentialError);
        }
        let text = value.to_str().map_err(|_| CredentialError)?;
        let (scheme, rest) = text.split_once(' ').ok_or(CredentialError)?;
        let rest = rest.trim_start_matches(' ');
        if scheme.eq_ignore_ascii_case("basic") {
            Self::basic(rest).map(Some)
        } else if scheme.eq_ignore_ascii_case("bearer") {
            Ok(Some(Self {
                claimed: None,
                token: TokenText::parse(rest),
            }))
        } else {
            Err(CredentialError)
        }
    }

    fn basic(encoded: &str) -> Result<Self, CredentialError> {
        let decoded = STANDARD.decode(encoded).map_err(|_| CredentialError)?;
        let decoded = String::from_utf8(decoded).map_err(|_| CredentialError)?;
        let (user, password) = decoded.split_once(':').ok_or(CredentialError)?;
        let end = user.floor_char_boundary(USER_LEN_MAX);
        Ok(Self {
            claimed: user.get(..end).map(str::to_owned),
            token: TokenText::parse(password),
        })
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credential(hidden)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cuesta_store::Entropy;
    use http::HeaderValue;

    fn headers(values: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(AUTHORIZATION, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    fn basic(user: &str, password: &str) -> String {
        format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))
    }

    #[test]
    fn basic_and_bearer_are_the_same_token() {
        let token = TokenText::random(&Entropy::seeded(1));
        for (value, claimed) in [
            (basic("ann", token.reveal()), Some("ann")),
            (basic("", token.reveal()), Some("")),
            (basic("x", token.reveal()).replace("Basic", "bAsIc"), Some("x")),
            (format!("Bearer {}", token.reveal()), None),
            (format!("bearer  {}", token.reveal()), None),
        ] {
            let credential = Credential::of(&headers(&[&value])).unwrap().unwrap();
            assert_eq!(
                (credential.claimed.as_deref(), credential.token.as_ref()),
                (claimed, Some(&token)),
                "{value}"
            );
        }
        assert_eq!(Credential::of(&headers(&[])), Ok(None));
    }

    #[test]
    fn what_is_no_token_is_a_credential_that_proves_nothing() {
        for value in [basic("ann", "hunter2"), basic("ann", ""), "Bearer ".to_owned() + "x"] {
            let credential = Credential::of(&headers(&[&value])).unwrap().unwrap();
            assert_eq!(credential.token, None, "{value}");
        }
        let long = basic(&"é".repeat(100), "x");
        let credential = Credential::of(&headers(&[&long])).unwrap().unwrap();
        assert_eq!(credential.claimed.unwrap().len(), 64);
    }

    #[test]
    fn other_headers_are_malformed() {
        let token = format!("Bearer {}", TokenText::random(&Entropy::seeded(1)).reveal());
        let long = format!("Basic {}", "A".repeat(HEADER_LEN_MAX));
        for values in [
            &["Basic"][..],
            &["Basic !"],
            &["Basic YQ=="],
            &["Basic /w=="],
            &["Digest x"],
            &[""],
            &[&token, &token],
            &[&long],
        ] {
            assert_eq!(Credential::of(&headers(values)), Err(CredentialError), "{values:?}");
        }
    }
}
