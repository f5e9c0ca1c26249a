//! An agent's connection: opened when it is needed, and again after so many operations.

use crate::http::{Connection, Sink, Target};
use anyhow::{Context, Result, ensure};
use std::sync::Arc;

/// Requests to one server, and what they move.
pub(super) struct Link {
    pub(super) target: Arc<Target>,
    open: Option<Connection>,
    operations: usize,
    operations_max: usize,
    /// Bytes sent so far.
    pub(super) sent_bytes: u64,
    received_bytes: u64,
}

impl Link {
    /// A link whose connections last for `operations_max` operations; 0 is for ever.
    pub(super) fn new(target: Arc<Target>, operations_max: usize) -> Self {
        Self {
            target,
            open: None,
            operations: 0,
            operations_max,
            sent_bytes: 0,
            received_bytes: 0,
        }
    }

    /// Before an operation.
    pub(super) fn begin(&mut self) {
        if self.operations_max > 0 && self.operations == self.operations_max {
            self.close();
        }
        self.operations += 1;
    }

    /// Sends a request and answers the body, which must come with status 200.
    pub(super) async fn exchange(&mut self, what: &str, request: &[u8]) -> Result<&[u8]> {
        let connection = self.connection().await?;
        let status = connection.exchange(request).await?;
        self.sent_bytes += request.len() as u64;
        ensure!(status == 200, "{what}: status {status}");
        Ok(self.open.as_ref().map(Connection::body).unwrap_or_default())
    }

    /// The same, with a body that goes to `sink`.
    pub(super) async fn exchange_into(&mut self, what: &str, request: &[u8], sink: &mut dyn Sink) -> Result<()> {
        let connection = self.connection().await?;
        let status = connection.exchange_into(request, sink).await?;
        self.sent_bytes += request.len() as u64;
        ensure!(status == 200, "{what}: status {status}");
        Ok(())
    }

    /// The next request gets a new connection.
    pub(super) fn close(&mut self) {
        self.received_bytes = self.received_bytes();
        self.operations = 0;
        self.open = None;
    }

    /// Bytes received so far.
    pub(super) fn received_bytes(&self) -> u64 {
        self.received_bytes + self.open.as_ref().map_or(0, |open| open.received_bytes)
    }

    async fn connection(&mut self) -> Result<&mut Connection> {
        if self.open.is_none() {
            self.open = Some(Connection::open(&self.target).await?);
        }
        self.open.as_mut().context("no connection")
    }
}
