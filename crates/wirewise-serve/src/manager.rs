// SPDX-License-Identifier: Apache-2.0
//! Messages to the service manager: the service is ready, its status, and signs of life.

use std::sync::LazyLock;

use sd_notify::NotifyState;

/// Whether the manager ends a service that is silent (`WatchdogSec=`).
static WATCHED: LazyLock<bool> = LazyLock::new(|| sd_notify::watchdog_enabled(false, &mut 0));

pub fn ready(status: &str) {
    notify(&[NotifyState::Ready, NotifyState::Status(status)]);
}

pub fn stopping() {
    notify(&[NotifyState::Stopping]);
}

/// Tells that work goes on. Called where work is done and never by a timer: whoever hangs is silent.
pub fn progress() {
    if *WATCHED {
        notify(&[NotifyState::Watchdog]);
    }
}

fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(false, states) {
        tracing::warn!("the service manager could not be told: {error}");
    }
}
