// SPDX-License-Identifier: Apache-2.0
//! Asks a backend whether it lives.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::abi::Check;

/// Of checks at the same time.
const THREADS: usize = 64;
/// Of an answer's first line.
const LONGEST_LINE: usize = 256;

/// One check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    pub check: Check,
    pub address: IpAddr,
    pub port: u16,
    pub path: String,
    pub timeout: Duration,
}

impl Probe {
    /// The error says why it does not live.
    pub fn run(&self) -> Result<(), String> {
        let end = Instant::now() + self.timeout;
        let at = SocketAddr::from((self.address, self.port));
        let stream = TcpStream::connect_timeout(&at, self.timeout).map_err(|error| error.to_string())?;
        match self.check {
            Check::Http => self.get(stream, end),
            Check::None | Check::Tcp => Ok(()),
        }
    }

    fn get(&self, mut stream: TcpStream, end: Instant) -> Result<(), String> {
        let host = SocketAddr::from((self.address, self.port));
        let request = format!(
            "GET {} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: wirewised\r\nAccept: */*\r\nConnection: close\r\n\r\n",
            self.path
        );
        let left = || match end.saturating_duration_since(Instant::now()) {
            Duration::ZERO => Err("no answer in time".to_string()),
            left => Ok(left),
        };
        let failed = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut => "no answer in time".to_string(),
            _ => error.to_string(),
        };
        stream.set_write_timeout(Some(left()?)).map_err(failed)?;
        stream.write_all(request.as_bytes()).map_err(failed)?;
        let (mut line, mut byte) = (Vec::new(), [0; 64]);
        while !line.contains(&b'\n') && line.len() < LONGEST_LINE {
            // Whoever answers byte by byte has no more time than others.
            stream.set_read_timeout(Some(left()?)).map_err(failed)?;
            match stream.read(&mut byte).map_err(failed)? {
                0 => break,
                read => line.extend_from_slice(&byte[..read]),
            }
        }
        status(&line)
    }
}

/// The first line of an answer: RFC 9112, section 4.
fn status(line: &[u8]) -> Result<(), String> {
    let text = String::from_utf8_lossy(line.split(|byte| b"\r\n".contains(byte)).next().unwrap_or_default());
    let mut words = text.split(' ');
    let version = words.next().is_some_and(|version| version.starts_with("HTTP/1."));
    match words.next().filter(|code| version && code.len() == 3 && code.bytes().all(|b| b.is_ascii_digit())) {
        Some(code) if code.starts_with('2') => Ok(()),
        Some(code) => Err(format!("answered {code}")),
        None => Err("answered something that is not HTTP/1".to_string()),
    }
}

/// Runs checks beside each other; the results are in the order of the checks.
pub fn run_all(probes: &[Probe]) -> Vec<Result<(), String>> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        while let Some((index, probe)) =
            Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|index| Some((index, probes.get(index)?)))
        {
            done.push((index, probe.run()));
        }
        done
    };
    let mut results = vec![Err("it was not checked".to_string()); probes.len()];
    thread::scope(|scope| {
        let threads: Vec<_> = (0..probes.len().min(THREADS)).map(|_| scope.spawn(work)).collect();
        for (index, result) in threads.into_iter().filter_map(|thread| thread.join().ok()).flatten() {
            results[index] = result;
        }
    });
    results
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// What a probe says of a server that answers so. silence : before each byte.
    fn answer(text: &'static str, silence: Duration) -> Result<(), String> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 1024];
            let read = stream.read(&mut request).unwrap();
            for byte in text.as_bytes() {
                thread::sleep(silence);
                if stream.write_all(&[*byte]).is_err() {
                    break;
                }
            }
            String::from_utf8_lossy(&request[..read]).into_owned()
        });
        let probe = Probe {
            check: Check::Http,
            address: [127, 0, 0, 1].into(),
            port,
            path: "/health".to_string(),
            timeout: Duration::from_millis(500),
        };
        let result = run_all(&[probe]).remove(0);
        let request = server.join().unwrap();
        assert!(request.starts_with("GET /health HTTP/1.1\r\nHost: 127.0.0.1:"), "{request}");
        assert!(request.ends_with("\r\nConnection: close\r\n\r\n"), "{request}");
        result
    }

    #[test]
    fn only_a_2xx_in_time_is_alive() {
        let at_once = Duration::ZERO;
        assert_eq!(answer("HTTP/1.1 204 No Content\r\n\r\n", at_once), Ok(()));
        assert_eq!(answer("HTTP/1.0 200 OK\n", at_once), Ok(()));
        assert_eq!(answer("HTTP/1.1 503 Busy\r\n\r\n", at_once), Err("answered 503".to_string()));
        for strange in ["", "SSH-2.0-x\r\n", "HTTP/1.1 2000 OK\r\n", "HTTP/2 200\r\n"] {
            assert!(answer(strange, at_once).unwrap_err().contains("not HTTP/1"), "{strange}");
        }
        let late = answer("HTTP/1.1 200 OK\r\n", Duration::from_millis(60));
        assert_eq!(late, Err("no answer in time".to_string()));
    }

    #[test]
    fn nobody_listens_where_nobody_listens() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        // The port of a client, which nobody else can have meanwhile.
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let port = client.local_addr().unwrap().port();
        let probe = Probe {
            check: Check::Tcp,
            address: [127, 0, 0, 1].into(),
            port,
            path: String::new(),
            timeout: Duration::from_millis(200),
        };
        assert!(probe.run().unwrap_err().contains("refused"));
    }
}
