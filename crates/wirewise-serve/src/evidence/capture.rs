// SPDX-License-Identifier: Apache-2.0
//! A capture of one alert, from the frames that came before it to the last that follows. Its file has no name until it is complete.

use std::collections::VecDeque;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use wirewised::error::{Error, Result};
use wirewised::offline::capture_out::CaptureOut;
use wirewised::plane::user_space::Seen;

use super::latest::Latest;
use super::selector::Selector;
use super::shelf::Shelf;

/// As the file of events has it.
const MODE: u32 = 0o640;

/// What an alert asks for.
pub struct Request {
    pub file: PathBuf,
    pub selector: Selector,
    /// Since 1970: from here on frames came after the alert.
    pub time_ns: u64,
    /// Frames before and after it.
    pub before: usize,
    pub after: usize,
    /// When the frames that came before the alert are in memory, and when the capture ends.
    pub settled: Instant,
    pub until: Instant,
    /// Counts those at work, by its references.
    #[expect(dead_code, reason = "held until the capture ends, and never read")]
    pub slot: Arc<()>,
}

pub struct Capture {
    out: CaptureOut,
    request: Request,
    /// How many may still follow.
    left: usize,
}

impl Capture {
    /// Begins with the frames that are there already.
    pub fn begin(request: Request, latest: &Latest) -> Result<Self> {
        let out = CaptureOut::create(&request.file)?;
        let mut capture = Self { out, left: request.after, request };
        let mut before = VecDeque::new();
        let mut after = Vec::new();
        for seen in latest.frames().filter(|seen| capture.request.selector.fits(seen.frame)) {
            if seen.time_ns > capture.request.time_ns {
                after.push(seen);
                continue;
            }
            before.push_back(seen);
            if before.len() > capture.request.before {
                before.pop_front();
            }
        }
        for seen in before {
            capture.out.write_frame(seen.time_ns, seen.wire_length, seen.frame)?;
        }
        for seen in after {
            capture.follow(&seen)?;
        }
        Ok(capture)
    }

    /// A frame that follows, if it is one of the alert's.
    pub fn follow(&mut self, seen: &Seen<'_>) -> Result<()> {
        if self.left == 0 || !self.request.selector.fits(seen.frame) {
            return Ok(());
        }
        self.left -= 1;
        self.out.write_frame(seen.time_ns, seen.wire_length, seen.frame)
    }

    pub fn is_complete(&self) -> bool {
        self.left == 0 || Instant::now() >= self.request.until
    }

    /// Gives the file its name, and makes room for it before. Returns how many frames it has, and how many captures went.
    pub fn finish(self, shelf: &Mutex<Shelf>) -> Result<(u64, u64)> {
        let Self { out, request, .. } = self;
        let frames = out.packets();
        let whole = out.finish()?;
        let failed = |error: std::io::Error| Error::other(format!("{}: {error}", request.file.display()));
        let file = whole.file()?;
        file.set_permissions(Permissions::from_mode(MODE)).map_err(failed)?;
        let size = file.metadata().map_err(failed)?.len();
        let mut shelf = shelf.lock().unwrap_or_else(PoisonError::into_inner);
        let removed = shelf.make_room(size).map_err(failed)?;
        whole.commit()?;
        shelf.add(request.file, size);
        Ok((frames, removed))
    }
}
