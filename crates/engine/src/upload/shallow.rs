//! Where a client's history ends: `depth`, `deepen-since`, `deepen-not`, and the boundaries that client and repository
//! have already (gitprotocol-v2, fetch: `shallow-info`). A pure function over the commit graph.

use super::select::Targets;
use crate::graph::{Graph, Position, PositionSet, SendSet};
use crate::{EngineError, View};
use cuesta_git::{ObjectId, ObjectKind};
use std::num::NonZeroU32;
use std::sync::Arc;

/// How much history a client wants (gitprotocol-v2, fetch: `deepen`, `deepen-since`, `deepen-not`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Deepen {
    /// Its boundary stays where it is.
    #[default]
    Unchanged,
    /// All that the repository has.
    Whole,
    /// That many commits, counted from the wants.
    Depth(NonZeroU32),
    /// That many commits more than from the wants to the nearest commit of the client's boundary.
    Relative(NonZeroU32),
    /// What was committed after a time, or is not reachable from certain objects.
    Excluding {
        /// Seconds since the Unix epoch. Commits before it are left out, and all that they reach.
        since: Option<i64>,
        /// Objects whose history is left out. Those that the view does not have are ignored.
        not: Vec<ObjectId>,
    },
}

/// Where the client's history will end after a fetch. Made for one view; of use with that one only.
#[derive(Clone, Debug)]
pub struct Boundary {
    shallow: Vec<ObjectId>,
    unshallow: Vec<ObjectId>,
    /// Commits whose parents are not followed from the wants.
    cut: PositionSet,
    /// Commits that the client has without their parents.
    client: PositionSet,
    /// Parents of commits that cease to be shallow: wanted too.
    beyond: Vec<Position>,
}

/// Finds the boundary for a fetch of `wants` by a client whose present boundary is `shallow`. Commits of it that the view
/// does not have are ignored.
///
/// Errors: [`EngineError::NotOurRef`] for a want the view does not have, [`EngineError::Refused`] for a boundary of
/// something else than commits and for limits that leave nothing to send.
pub async fn boundary(
    view: &View,
    wants: &[ObjectId],
    shallow: &[ObjectId],
    deepen: &Deepen,
) -> Result<Boundary, EngineError> {
    let graph = view.graph().await?;
    let repository = view.state().shallow().to_vec();
    let (wants, shallow, deepen) = (wants.to_vec(), shallow.to_vec(), deepen.clone());
    let work = move || {
        let mut targets = Targets::default();
        for want in &wants {
            if !targets.add(&graph, want)? {
                return Err(EngineError::NotOurRef(*want));
            }
        }
        let drawing = Drawing::new(&graph, targets.commits, &repository, &shallow)?;
        drawing.finish(&deepen)
    };
    view.world().workers.run(work).await
}

impl Boundary {
    /// Commits that become shallow on the client.
    pub fn shallow(&self) -> &[ObjectId] {
        &self.shallow
    }

    /// Commits that are shallow on the client and cease to be.
    pub fn unshallow(&self) -> &[ObjectId] {
        &self.unshallow
    }

    /// Whether any history is cut off, on the client or here: else a fetch sends what it would without a boundary.
    pub(super) fn cuts(&self) -> bool {
        !self.cut.is_empty()
    }

    /// All that it says, as ids: who becomes shallow, who ceases to be, and where walks end, on the client and here.
    pub(super) fn oids(&self, graph: &Graph) -> Result<[Vec<ObjectId>; 5], EngineError> {
        let oids = |positions: &mut dyn Iterator<Item = Position>| {
            let oids = positions.map(|position| graph.oid(position));
            oids.collect::<Result<Vec<_>, EngineError>>()
        };
        Ok([
            self.shallow.clone(),
            self.unshallow.clone(),
            oids(&mut self.cut.iter())?,
            oids(&mut self.client.iter())?,
            oids(&mut self.beyond.iter().copied())?,
        ])
    }

    /// What to send to a client that has `common`, down to its boundary.
    pub(super) fn send_set(
        &self,
        graph: &Graph,
        wants: &[Position],
        common: &[Position],
    ) -> Result<CutSet, EngineError> {
        let wants = [wants, self.beyond.as_slice()].concat();
        let mut send = graph.reachable(&wants, Some(&self.cut), 0)?;
        let mut generation_min = u32::MAX;
        for commit in send.iter() {
            let parents = graph.parents(commit)?;
            let generations = parents.iter().chain([&commit]).map(|commit| graph.generation(*commit));
            generation_min = generations.fold(generation_min, u32::min);
        }
        let common = graph.reachable(common, Some(&self.client), generation_min)?;
        for commit in common.iter() {
            send.remove(commit);
        }
        let mut whole = Vec::new();
        for commit in send.iter() {
            let there = |parent: &Position| send.contains(*parent) || common.contains(*parent);
            if !graph.parents(commit)?.iter().all(there) {
                whole.push(commit);
            }
        }
        Ok(CutSet {
            commits: SendSet { send, common },
            whole,
        })
    }
}

/// What a fetch down to a boundary must send, as commits.
pub(super) struct CutSet {
    /// `common` holds every commit the client has whose generation matters.
    pub(super) commits: SendSet,
    /// Commits to send some of whose parents the client will not have. What they add to their parents is not enough:
    /// their whole trees are to be sent.
    pub(super) whole: Vec<Position>,
}

struct Drawing<'a> {
    graph: &'a Arc<Graph>,
    wants: Vec<Position>,
    /// The repository's own boundary.
    repository: PositionSet,
    /// The client's, in its order.
    client: Vec<(ObjectId, Position)>,
}

impl<'a> Drawing<'a> {
    fn new(
        graph: &'a Arc<Graph>,
        wants: Vec<Position>,
        repository: &[ObjectId],
        client: &[ObjectId],
    ) -> Result<Self, EngineError> {
        let mut own = PositionSet::new(graph.slot_count());
        for commit in repository.iter().filter_map(|oid| graph.commit(oid)) {
            // Where a later push has brought the parents, history goes on.
            if graph.parents(commit)?.is_empty() {
                own.insert(commit, graph.limit(commit.slot)?);
            }
        }
        let mut known = Vec::with_capacity(client.len());
        for oid in client {
            let Some(position) = graph.locate(oid) else { continue };
            if graph.slot(position.slot)?.index.kind(position.entry) != ObjectKind::Commit {
                return Err(EngineError::Refused(format!("invalid shallow object {oid}")));
            }
            known.extend(graph.commit(oid).map(|commit| (*oid, commit)));
        }
        Ok(Self {
            graph,
            wants,
            repository: own,
            client: known,
        })
    }

    fn finish(self, deepen: &Deepen) -> Result<Boundary, EngineError> {
        let client = self.set(self.client.iter().map(|(_, commit)| *commit))?;
        let drawn = match deepen {
            Deepen::Unchanged if self.repository.is_empty() => Drawn::nothing(self.graph),
            Deepen::Unchanged => Drawn {
                inner: PositionSet::new(self.graph.slot_count()),
                ..self.to_depth(None, Some(&client))?
            },
            Deepen::Whole if self.repository.is_empty() => Drawn {
                inner: client.clone(),
                ends: Vec::new(),
            },
            Deepen::Whole => self.to_depth(None, None)?,
            Deepen::Depth(depth) => self.to_depth(Some(depth.get()), None)?,
            Deepen::Relative(more) => match self.depth_of(&client)? {
                Some(depth) => self.to_depth(Some(depth.saturating_add(more.get())), None)?,
                None => Drawn::nothing(self.graph),
            },
            Deepen::Excluding { since, not } => self.excluding(*since, not)?,
        };
        self.boundary(client, &drawn)
    }

    fn boundary(&self, client: PositionSet, drawn: &Drawn) -> Result<Boundary, EngineError> {
        let new_ends = drawn.ends.iter().filter(|commit| !client.contains(**commit));
        let shallow = new_ends
            .map(|commit| self.graph.oid(*commit))
            .collect::<Result<_, _>>()?;
        let (mut unshallow, mut beyond) = (Vec::new(), Vec::new());
        for (oid, commit) in self.client.iter().filter(|(_, commit)| drawn.inner.contains(*commit)) {
            unshallow.push(*oid);
            beyond.extend(self.graph.parents(*commit)?);
        }
        let ends = drawn.ends.iter().copied().filter(|end| !self.repository.contains(*end));
        Ok(Boundary {
            shallow,
            unshallow,
            // Those that cease to be shallow are no exception: what is beyond them is wanted by itself.
            cut: self.set(ends.chain(client.iter()))?,
            client,
            beyond,
        })
    }

    /// Walks breadth first, so that each commit is met at its least depth.
    fn to_depth(&self, depth: Option<u32>, stops: Option<&PositionSet>) -> Result<Drawn, EngineError> {
        let mut drawn = Drawn::nothing(self.graph);
        self.walk(|commit, at| {
            let stopped = stops.is_some_and(|stops| stops.contains(commit));
            let is_end = depth.is_some_and(|depth| at >= depth) || stopped || self.repository.contains(commit);
            if is_end {
                drawn.ends.push(commit);
            } else {
                drawn.inner.insert(commit, self.graph.limit(commit.slot)?);
            }
            Ok(if is_end { Step::Stop } else { Step::Deeper })
        })?;
        Ok(drawn)
    }

    /// How far from the wants the nearest commit of `client` is, the wants themselves being at 1.
    fn depth_of(&self, client: &PositionSet) -> Result<Option<u32>, EngineError> {
        let mut found = None;
        self.walk(|commit, at| {
            if client.contains(commit) {
                found = Some(at);
                return Ok(Step::End);
            }
            Ok(Step::Deeper)
        })?;
        Ok(found)
    }

    fn walk(&self, mut visit: impl FnMut(Position, u32) -> Result<Step, EngineError>) -> Result<(), EngineError> {
        let mut seen = PositionSet::new(self.graph.slot_count());
        let mut level = Vec::new();
        for &want in &self.wants {
            let want = self.graph.canonical(want)?;
            if seen.insert(want, self.graph.limit(want.slot)?) {
                level.push(want);
            }
        }
        let mut depth = 0u32;
        while !level.is_empty() {
            depth = depth.saturating_add(1);
            for commit in std::mem::take(&mut level) {
                match visit(commit, depth)? {
                    Step::End => return Ok(()),
                    Step::Stop => continue,
                    Step::Deeper => {}
                }
                for parent in self.graph.parents(commit)? {
                    if seen.insert(parent, self.graph.limit(parent.slot)?) {
                        level.push(parent);
                    }
                }
            }
        }
        Ok(())
    }

    fn excluding(&self, since: Option<i64>, not: &[ObjectId]) -> Result<Drawn, EngineError> {
        let mut excluded = Targets::default();
        for oid in not {
            excluded.add(self.graph, oid)?;
        }
        let mut inner = self.graph.send_since(&self.wants, &excluded.commits, since)?;
        if inner.is_empty() {
            return Err(EngineError::Refused(
                "no commits selected for shallow requests".to_owned(),
            ));
        }
        let mut ends = Vec::new();
        for commit in inner.iter() {
            let parents = self.graph.parents(commit)?;
            if self.repository.contains(commit) || !parents.iter().all(|parent| inner.contains(*parent)) {
                ends.push(commit);
            }
        }
        for end in &ends {
            inner.remove(*end);
        }
        Ok(Drawn { inner, ends })
    }

    fn set(&self, commits: impl IntoIterator<Item = Position>) -> Result<PositionSet, EngineError> {
        let mut set = PositionSet::new(self.graph.slot_count());
        for commit in commits {
            set.insert(commit, self.graph.limit(commit.slot)?);
        }
        Ok(set)
    }
}

/// What a walk does next.
enum Step {
    /// Goes to the commit's parents.
    Deeper,
    /// Leaves them out.
    Stop,
    /// Ends altogether.
    End,
}

/// A part of the history.
struct Drawn {
    /// Commits in it whose parents are in it too.
    inner: PositionSet,
    /// Commits in it at which it ends.
    ends: Vec<Position>,
}

impl Drawn {
    fn nothing(graph: &Graph) -> Self {
        Self {
            inner: PositionSet::new(graph.slot_count()),
            ends: Vec::new(),
        }
    }
}
