// SPDX-License-Identifier: GPL-2.0-only

//! As much of HTTP/1.1 as a page of metrics takes: a request without a body, one answer, the end of the connection.

use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

/// Bytes of a request, at most.
pub const REQUEST_MAX: usize = 8 << 10;

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Only the head of the answer is wanted.
    pub head: bool,
    /// The path, without what follows a question mark.
    pub path: String,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Its status.
    pub status: u16,
    /// The media type of its body.
    pub content_type: &'static str,
    /// Its body.
    pub body: String,
}

/// The media type of short texts.
pub const PLAIN: &str = "text/plain; charset=utf-8";

impl Answer {
    /// A short text, with a status.
    pub fn text(status: u16, text: &str) -> Self {
        Self {
            status,
            content_type: PLAIN,
            body: format!("{text}\n"),
        }
    }

    /// Writes it; without the body if only the head is wanted.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn write(&self, out: &mut impl Write, head: bool) -> io::Result<()> {
        let reason = match self.status {
            200 => "OK",
            400 => "Bad Request",
            404 => "Not Found",
            405 => "Method Not Allowed",
            408 => "Request Timeout",
            431 => "Request Header Fields Too Large",
            _ => "Service Unavailable",
        };
        let allow = if self.status == 405 {
            "Allow: GET, HEAD\r\n"
        } else {
            ""
        };
        write!(
            out,
            "HTTP/1.1 {} {reason}\r\nContent-Type: {}\r\nContent-Length: {}\r\n{allow}Connection: close\r\n\r\n",
            self.status,
            self.content_type,
            self.body.len(),
        )?;
        if !head {
            out.write_all(self.body.as_bytes())?;
        }
        out.flush()
    }
}

/// Parses a request's head, without the empty line behind it.
///
/// # Errors
///
/// The answer that says why it is refused.
pub fn parse(head: &str) -> Result<Request, Answer> {
    let mut words = head.lines().next().unwrap_or_default().split(' ');
    let (method, target, version) = (words.next(), words.next(), words.next());
    let (Some(method), Some(target), Some("HTTP/1.0" | "HTTP/1.1"), None) =
        (method, target, version, words.next())
    else {
        return Err(Answer::text(400, "this is no request of HTTP/1.1"));
    };
    let head = match method {
        "GET" => false,
        "HEAD" => true,
        _ => return Err(Answer::text(405, "only GET and HEAD are allowed")),
    };
    if !target.starts_with('/') {
        return Err(Answer::text(
            400,
            "the path of a request begins with a slash",
        ));
    }
    Ok(Request {
        head,
        path: target.split('?').next().unwrap_or_default().into(),
    })
}

/// Reads a request from `from`, which blocks for `step` at most, until `limit` has passed.
///
/// # Errors
///
/// The answer that says why it is refused; none if there is nobody to answer to.
pub fn read(from: &mut impl Read, limit: Duration) -> Result<Request, Option<Answer>> {
    let start = Instant::now();
    let mut bytes = Vec::new();
    let mut chunk = [0; 1024];
    loop {
        let end = find(&bytes, b"\r\n\r\n").or_else(|| find(&bytes, b"\n\n"));
        if let Some(end) = end {
            let head = bytes.get(..end).unwrap_or_default();
            let head = std::str::from_utf8(head);
            let head = head.map_err(|_| Answer::text(400, "the request is not UTF-8"))?;
            return Ok(parse(head)?);
        }
        if bytes.len() > REQUEST_MAX {
            return Err(Some(Answer::text(431, "the request has more than 8 KiB")));
        }
        if start.elapsed() > limit {
            return Err(Some(Answer::text(408, "the request took too long")));
        }
        match from.read(&mut chunk) {
            Ok(0) => return Err(None),
            Ok(length) => bytes.extend_from_slice(chunk.get(..length).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                ) => {}
            Err(_) => return Err(None),
        }
    }
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}
