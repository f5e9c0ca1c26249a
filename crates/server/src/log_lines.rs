//! Log lines on their way out: gathered for a moment and written together, for a system call for each line of a busy server
//! costs more than the line.

use parking_lot::{Condvar, Mutex};
use std::io::{self, Write};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

/// How long a line waits for others, at most; warnings and errors do not wait, nor what came before them.
const GATHER_TIME: Duration = Duration::from_millis(20);
/// Bytes that may wait; whoever adds the next line writes them out.
const WAITING_BYTES_MAX: usize = 64 << 10;

/// Where lines are written. Clones write to the same place.
#[derive(Clone)]
pub struct LogLines(Arc<Shared>);

struct Shared {
    waiting: Mutex<Waiting>,
    /// Something waits, or it is time to end.
    changed: Condvar,
    /// Held while bytes are written, so that they stay in order.
    output: Mutex<Box<dyn Write + Send>>,
}

#[derive(Default)]
struct Waiting {
    bytes: Vec<u8>,
    ends: bool,
}

/// Writes what waits, from time to time and when it is dropped.
pub struct LogWriter {
    lines: LogLines,
    thread: Option<JoinHandle<()>>,
}

impl LogWriter {
    /// Starts writing to `output`.
    pub fn start(output: Box<dyn Write + Send>) -> io::Result<Self> {
        let lines = LogLines(Arc::new(Shared {
            waiting: Mutex::default(),
            changed: Condvar::new(),
            output: Mutex::new(output),
        }));
        let own = lines.clone();
        let thread = std::thread::Builder::new().name("log".to_owned());
        Ok(Self {
            thread: Some(thread.spawn(move || own.write_from_time_to_time())?),
            lines,
        })
    }

    /// Where to put lines.
    pub fn lines(&self) -> LogLines {
        self.lines.clone()
    }
}

impl Drop for LogWriter {
    fn drop(&mut self) {
        self.lines.0.waiting.lock().ends = true;
        self.lines.0.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            // It has nothing to panic about; if it did, what waits is written here.
            let _ = thread.join();
        }
        self.lines.write_out();
    }
}

impl LogLines {
    fn write_from_time_to_time(&self) {
        loop {
            let mut waiting = self.0.waiting.lock();
            while waiting.bytes.is_empty() && !waiting.ends {
                self.0.changed.wait(&mut waiting);
            }
            if !waiting.ends {
                self.0.changed.wait_for(&mut waiting, GATHER_TIME);
            }
            let ends = waiting.ends;
            drop(waiting);
            self.write_out();
            if ends {
                return;
            }
        }
    }

    fn write_out(&self) {
        let mut output = self.0.output.lock();
        let bytes = std::mem::take(&mut self.0.waiting.lock().bytes);
        // There is nowhere to tell of a log that cannot be written.
        let _ = output.write_all(&bytes).and_then(|()| output.flush());
    }

    fn add(&self, line: &[u8], is_urgent: bool) {
        let mut waiting = self.0.waiting.lock();
        // The thread sleeps without a time of its own only while nothing waits, or once all is over.
        let is_first = waiting.bytes.is_empty();
        waiting.bytes.extend_from_slice(line);
        let is_due = is_urgent || waiting.ends || waiting.bytes.len() > WAITING_BYTES_MAX;
        drop(waiting);
        if is_due {
            self.write_out();
        } else if is_first {
            self.0.changed.notify_one();
        }
    }
}

/// Takes one line.
pub struct Line<'a> {
    lines: &'a LogLines,
    is_urgent: bool,
}

impl Write for Line<'_> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.lines.add(line, self.is_urgent);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for LogLines {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Line<'a> {
        let is_urgent = false;
        Line { lines: self, is_urgent }
    }

    fn make_writer_for(&'a self, meta: &Metadata<'_>) -> Line<'a> {
        let is_urgent = *meta.level() <= Level::WARN;
        Line { lines: self, is_urgent }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    /// Tells of each write.
    struct Told(mpsc::Sender<Vec<u8>>);

    impl Write for Told {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.0.send(bytes.to_vec());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn started() -> (LogWriter, mpsc::Receiver<Vec<u8>>) {
        let (told, writes) = mpsc::channel();
        (LogWriter::start(Box::new(Told(told))).unwrap(), writes)
    }

    #[test]
    fn lines_are_written_without_anybody_asking_and_in_order() {
        let (writer, writes) = started();
        let lines = writer.lines();
        for number in 0..1000 {
            lines.add(format!("{number}\n").as_bytes(), false);
        }
        let expected: String = (0..1000).map(|number| format!("{number}\n")).collect();
        let mut written = Vec::new();
        let mut count = 0;
        while written.len() < expected.len() {
            written.extend(writes.recv().unwrap());
            count += 1;
        }
        assert_eq!(String::from_utf8(written).unwrap(), expected);
        assert!(count < 1000, "some were written together");
    }

    #[test]
    fn what_is_urgent_or_much_is_written_at_once_and_the_rest_at_the_end() {
        let (writer, writes) = started();
        let lines = writer.lines();
        let all = || writes.try_iter().flatten().collect::<Vec<u8>>();
        lines.add(b"info\n", false);
        lines.add(b"warning\n", true);
        assert_eq!(all(), b"info\nwarning\n");
        let long = vec![b'x'; WAITING_BYTES_MAX + 1];
        lines.add(&long, false);
        assert_eq!(all(), long);
        lines.add(b"last\n", false);
        drop(writer);
        assert_eq!(all(), b"last\n");
        lines.add(b"after the end\n", false);
        assert_eq!(all(), b"after the end\n");
    }
}
