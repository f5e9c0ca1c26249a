//! A pack checked as a push of it into an empty repository would be, and nothing kept.

use super::error::IntakeError;
use super::intake::Intake;
use super::known::Nothing;
use super::options::{IntakeOptions, ReceiveOptions};
use cuesta_git::{ObjectFormat, ObjectId, fsck};
use std::collections::HashSet;

/// Takes a pack apart that comes in chunks of any size, checks every object in it, and puts together the layer of all
/// that is complete. Answers how many objects the pack has, and how many of them would be stored.
///
/// For tools and fuzzing: blocks, and uses memory and the spool's directory within the limits of `options`.
pub fn check_pack<'a>(
    format: ObjectFormat,
    options: &ReceiveOptions,
    chunks: impl IntoIterator<Item = &'a [u8]>,
) -> Result<(u32, u32), IntakeError> {
    let mut intake = Intake::new(IntakeOptions::new(format, options.clone(), fsck::Config::strict()));
    chunks.into_iter().try_for_each(|chunk| intake.feed(chunk))?;
    intake.finish_pack()?;
    let settled = intake.settle(&Nothing)?;
    let values: Vec<ObjectId> = settled.oids().collect();
    let reached = settled.reach(&Nothing, &HashSet::new(), &values)?;
    let built = settled.build(&Nothing, &reached, CHUNK_LEN, &mut |_| Ok(()))?;
    Ok((settled.objects(), built.objects))
}

/// Bytes of the layer held before they are thrown away.
const CHUNK_LEN: usize = 1 << 20;
