//! The `ls-refs` command over a view.

use super::repository_options::RepositoryOptions;
use super::shown_refs;
use cuesta_ledger::State;
use cuesta_protocol::Service;
use cuesta_protocol::pktline::FLUSH;
use cuesta_protocol::upload::ls_refs::LsRefs;

/// The whole answer. Cost: a line for each ref that is asked for, whatever the number of others.
pub fn write(state: &State, request: &LsRefs) -> Vec<u8> {
    let hidden = RepositoryOptions::of(state).hidden(Service::UploadPack);
    let mut out = Vec::with_capacity(4096);
    if request.matches(b"HEAD") {
        match (shown_refs::head(state, &hidden), shown_refs::unborn_head(state)) {
            (Some(head), _) => request.write_ref(&mut out, &head),
            (None, Some(target)) if !hidden.hides(target) => {
                request.write_unborn_head(&mut out, target.as_bytes());
            }
            (None, _) => {}
        }
    }
    let everything = [bytes::Bytes::new()];
    let prefixes = if request.prefixes().is_empty() {
        &everything
    } else {
        request.prefixes()
    };
    for prefix in prefixes {
        shown_refs::named(state, &hidden, prefix).for_each(|shown| request.write_ref(&mut out, &shown));
    }
    out.extend_from_slice(FLUSH);
    out
}
