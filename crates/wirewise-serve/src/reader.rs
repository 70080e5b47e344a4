// SPDX-License-Identifier: Apache-2.0
//! Commands of the agent that only read, run for peers of the control socket who may not read maps themselves. What they say is passed on
//! as it comes.

use std::process::ExitStatus;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream::poll_fn;
use serde::Deserialize;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::Child;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use wirewised::cli::check_by_service;
use wirewised::commands::by_service::Said;
use wirewised::error::Error;

use crate::api::{Asked, Service, said};

/// Commands that run at a time.
static PLACES: Semaphore = Semaphore::const_new(16);
/// Lines that may wait for a slow reader.
const WAITING: usize = 64;

/// The words of a command line.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Words {
    /// A JSON list.
    words: String,
    /// Width of the reader's terminal.
    columns: Option<u16>,
}

/// Runs a command. The answer is what it says, a JSON object a line, until it ends or the reader is gone.
pub async fn command(State(service): State<Service>, Asked(asked): Asked<Words>) -> Response {
    let words = serde_json::from_str::<Vec<String>>(&asked.words).map_err(Error::input);
    let words = match words.and_then(|words| check_by_service(&words).map(|()| words)) {
        Ok(words) => words,
        Err(error) => return said(StatusCode::BAD_REQUEST, &error.to_string()),
    };
    let Ok(place) = PLACES.try_acquire() else {
        return said(StatusCode::SERVICE_UNAVAILABLE, "too many commands run already; end one of them");
    };
    match service.agent.reads(&words, asked.columns) {
        Ok(child) => {
            let (tell, told) = channel(WAITING);
            tokio::spawn(async move {
                tokio::select! {
                    () = pass_on(child, &tell) => {}
                    // Whoever is gone lets go of the command with it.
                    () = tell.closed() => {}
                }
                drop(place);
            });
            ([(header::CONTENT_TYPE, "application/jsonl")], body(told)).into_response()
        }
        Err(error) => said(StatusCode::SERVICE_UNAVAILABLE, &error.to_string()),
    }
}

fn body(mut told: Receiver<Said>) -> Body {
    Body::from_stream(poll_fn(move |context| {
        let line = |said| serde_json::to_string(&said).map(|json| Bytes::from(json + "\n"));
        told.poll_recv(context).map(|said| said.map(line))
    }))
}

async fn pass_on(mut child: Child, tell: &Sender<Said>) {
    let (output, errors) = (child.stdout.take(), child.stderr.take());
    tokio::join!(lines(output, tell, Said::Output), lines(errors, tell, Said::Error));
    let code = child.wait().await.ok().as_ref().and_then(ExitStatus::code);
    // One that a signal ended has none.
    let code = code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1);
    let _ = tell.send(Said::ExitCode(code)).await;
}

async fn lines(from: Option<impl AsyncRead + Unpin>, tell: &Sender<Said>, kind: fn(String) -> Said) {
    let Some(from) = from else { return };
    let (mut from, mut line) = (BufReader::new(from), Vec::new());
    while from.read_until(b'\n', &mut line).await.is_ok_and(|length| length > 0) {
        let text = String::from_utf8_lossy(&line).into_owned();
        if tell.send(kind(text)).await.is_err() {
            return;
        }
        line.clear();
    }
}
