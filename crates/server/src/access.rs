//! Who may do what: the one place that decides, for HTTP, SSH and whatever comes later.
//!
//! A transport turns what a peer shows into an [`Identity`] ([`Gate::authenticate`] for tokens, [`Gate::authenticate_key`] for
//! SSH keys) and asks [`Gate::admit`] before each request. The decision itself, [`decide`], is a pure function of the accounts
//! at that moment: a token revoked, a key removed or a role taken away counts for the next request of an open connection.

mod credential;
mod decide;
mod first_roles;
mod gate;
mod openpgp;
mod public_key;
mod throttle;
mod token;

pub use credential::{Credential, CredentialError};
pub use decide::{Access, Identity, Lack, Proof, Target, Want, decide};
pub use first_roles::{create_repository, give_first_roles, push_target};
pub use gate::{Admission, Denied, Gate};
pub use openpgp::{OpenPgpKey, OpenPgpKeyError, OpenPgpSignature, Standing, Verdict};
pub use public_key::{PublicKey, PublicKeyError};
pub use throttle::Throttle;
pub(crate) use throttle::network;
pub use token::TokenText;
