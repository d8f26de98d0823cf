#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Checks the project's text.

usage: tests/words.py [--list] [PATH...]

Measures the files of git below PATH (default: all), and fails if a limit is not kept:

  docs of functions in Rust and in C headers that start with a verb: at least 95 %
  words that name nobody and nothing (BANNED), outside code spans: 0
  names of functions and types in Rust, C and shell with such words, or riddles (BANNED_NAMES): at
  most NAMES; the limit falls with the count
  lines over 100 columns in Rust, C, shell, Python and the prose of Markdown: 0

--list prints each finding as FILE:LINE: TEXT.
"""

import os
import re
import subprocess
import sys

COLUMNS = 100
VERB_SHARE = 95
NAMES = 15

BANNED = re.compile(
    r"\b(whoever|whosever|nobody|somebody|anybody|anew|in vain|(goes|go|going|went|gone) down"
    r"|(send|sends|sending|sent) down|(is|are|was|were|be|been|being) told|hungry|calm)\b",
    re.IGNORECASE,
)
# Words of names, and whole names, for which the field has terms.
BANNED_NAMES = re.compile(
    r"\b(tells?|told|hears?|heard|says?|said|went|vain|kept|others|trouble|retell|furnish|obeys?"
    r"|door|herald|elders|crowd|bury|let go|hand on|go on|goes on|make up|look again)\b"
    r"|^(about|book|follow|hold|lane|look|note|past|place|settle|stage)$"
)

# Third person; a verb that is missing is added here.
VERBS = frozenset(
    """
    Accepts Acquires Adds Adjusts Adopts Advances Aligns Allocates Allows Answers Appends Applies
    Arms Asks Asserts Assigns Attaches Balances Begins Binds Blocks Boots Borrows Bounds Breaks
    Builds Calculates Calls Cancels Carries Changes Charges Checks Chooses Claims Classifies Cleans
    Clears Clones Closes Collects Combines Commits Compares Compiles Completes Composes Computes
    Configures Connects Consumes Contains Continues Converts Copies Corrects Counts Covers Creates
    Credits Cuts Decides Declares Declines Decodes Decreases Deducts Defers Defines Delays Deletes
    Delivers Dequeues Derives Describes Detaches Determines Disables Discards Disconnects Dispatches
    Displays Divides Does Draws Drives Drops Dumps Duplicates Emits Empties Enables Encodes Ends
    Enqueues Ensures Enters Enumerates Erases Escapes Estimates Evaluates Evicts Examines Exchanges
    Excludes Executes Expands Expects Expires Exports Exposes Extends Extracts Fails Feeds Fetches
    Fills Finalises Finds Finishes Fixes Flags Flushes Folds Follows Forces Forgets Formats Forwards
    Frees Generates Gets Gives Grants Groups Grows Guards Handles Hands Hashes Holds Identifies
    Ignores Implements Imports Includes Increases Indexes Indicates Initialises Inserts Inspects
    Installs Interpolates Interprets Invalidates Invokes Issues Iterates Joins Keeps Kills Labels
    Lends Lets Limits Links Lists Loads Locates Locks Logs Looks Lowers Maintains Makes Maps Marks
    Matches Measures Merges Mixes Models Modifies Mounts Moves Multiplies Names Normalises Notes
    Notifies Obtains Occupies Offers Opens Orders Overrides Owns Packs Panics Parses Passes Pauses
    Performs Picks Pins Places Plans Plays Plots Points Polls Pops Populates Posts Predicts Prepares
    Prevents Prints Processes Produces Projects Promotes Protects Provides Publishes Pulls Pushes
    Puts Queries Queues Raises Ranks Reaches Reacts Reads Rebuilds Recalculates Receives Reclaims
    Recognises Recomputes Reconciles Records Recovers Redistributes Reduces Refills Refreshes
    Refuses Registers Rejects Releases Reloads Remembers Removes Renames Renders Renews Reopens
    Repeats Replaces Replays Reports Represents Requests Requeues Requires Rescales Reserves Resets
    Resizes Resolves Restarts Restores Restricts Resumes Retrieves Retries Returns Reuses Reverses
    Reverts Revokes Rewrites Rotates Rounds Runs Samples Saves Scales Scans Schedules Searches Seeds
    Selects Sends Separates Serialises Serves Sets Settles Shares Shifts Shows Shrinks Shuffles
    Signals Simulates Skips Sleeps Solves Sorts Spawns Spends Splits Starts Steals Steps Stops
    Stores Strips Submits Substitutes Subtracts Sums Suspends Swaps Switches Takes Tells Terminates
    Tests Throttles Tracks Transfers Translates Trims Truncates Tries Turns Unblocks Unbinds Unlinks
    Unloads Unlocks Unmounts Unpacks Unregisters Updates Uses Validates Verifies Visits Waits Wakes
    Walks Warns Withdraws Withholds Wraps Writes Yields
    """.split()
)

# Names of functions and types, by the ending of the file.
RUST_NAME = re.compile(
    r"\s*(?:(?:pub(?:\([^)]*\))?|default|const|async|unsafe|extern \"C\") )*"
    r"(fn|struct|enum|union|trait|type) (?P<name>\w+)"
)
C_NAME = re.compile(r"(?:(?:struct|enum) (?=\w+ {)|(?:\w[\w *]*[ *])?(?=\w+\())(?P<name>\w+)")
SHELL_NAME = re.compile(r"\s*(?P<name>\w+)\(\) [{(]")
NAME = {".rs": RUST_NAME, ".c": C_NAME, ".h": C_NAME, ".sh": SHELL_NAME}
WORD_ENDS = re.compile(r"_|(?<=[a-z0-9])(?=[A-Z])")
KERNEL_DOC = re.compile(r" \* (\w+)\(\) - (\S+)")
CODE_SPAN = re.compile(r"`[^`]*`")


def tracked(paths):
    """Returns the files of git below the paths that are text of the project's own."""
    out = subprocess.check_output(["git", "ls-files", "--", *paths], text=True)
    return [f for f in out.split("\n") if os.path.isfile(f) and not f.startswith("LICENSES/")]


def function_docs(path, lines):
    """Yields the line number and the first sentence's first word of each function's doc."""
    if path.endswith(".h"):
        for number, line in enumerate(lines, 1):
            if match := KERNEL_DOC.match(line):
                yield number, match[2]
        return
    start, doc = 0, None
    depth = 0
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if text.startswith("///"):
            if doc is None:
                start, doc = number, text[3:].strip()
            continue
        if doc is None:
            continue
        # Attributes, of several lines too, stand between a doc and its function.
        if depth > 0 or text.startswith("#["):
            depth += text.count("[") - text.count("]")
            continue
        if (item := RUST_NAME.match(line)) and item[1] == "fn":
            yield start, doc.split()[0].rstrip(".,:;") if doc else ""
        doc = None


def prose(path, lines):
    """Yields the lines whose columns count, with their numbers."""
    fenced = generated = path.endswith("reference.md")
    for number, line in enumerate(lines, 1):
        if path.endswith(".md"):
            if line.startswith("```"):
                fenced = not fenced
            if line.startswith(("<!-- keys -->", "<!-- metrics -->", "<!-- figures ")):
                generated = True
            elif line.startswith("<!-- end of"):
                generated = False
            if fenced or generated or line.startswith(("|", "<", "![")):
                continue
        yield number, line


def words_of(path, line):
    """Returns the part of a line in which words count: comments and strings, or all of it."""
    if path.endswith(".rs"):
        line = " ".join(re.findall(r'//.*|"(?:[^"\\]|\\.)*"?', line)) or (
            line if not re.search(r"[;{}()=]", line) else ""
        )
    elif path.endswith((".c", ".h", ".sh", ".py")):
        line = " ".join(re.findall(r'/?\*.*|#.*|//.*|"(?:[^"\\]|\\.)*"', line))
    return CODE_SPAN.sub("", line)


def main(args):
    verbose = "--list" in args
    findings = []
    docs = verbs = words = names = long = 0
    for path in tracked([a for a in args if a != "--list"]):
        if not path.endswith((".rs", ".c", ".h", ".sh", ".py", ".md", ".toml", ".map")):
            continue
        if path == "tests/words.py":
            continue
        lines = open(path, encoding="utf-8").read().split("\n")
        if path.endswith((".rs", ".h")):
            for number, word in function_docs(path, lines):
                docs += 1
                if word in VERBS:
                    verbs += 1
                else:
                    findings.append(f"{path}:{number}: no verb: {lines[number - 1].strip()}")
        for number, line in prose(path, lines):
            if len(line.expandtabs(4)) > COLUMNS and not path.endswith((".toml", ".map")):
                long += 1
                findings.append(f"{path}:{number}: {len(line)} columns")
        name = NAME.get(os.path.splitext(path)[1])
        for number, line in enumerate(lines, 1):
            if name and (item := name.match(line)):
                spaced = WORD_ENDS.sub(" ", item["name"]).lower()
                if match := BANNED.search(spaced) or BANNED_NAMES.search(spaced):
                    names += 1
                    findings.append(f"{path}:{number}: {match[0]}: {item['name']}")
            for match in BANNED.finditer(words_of(path, line)):
                words += 1
                findings.append(f"{path}:{number}: {match[0]}: {line.strip()}")
    if verbose:
        print("\n".join(findings))
    share = 100 * verbs / docs if docs else 100
    print(f"docs of functions with a verb: {verbs} of {docs}, {share:.1f} %; limit {VERB_SHARE} %")
    print(f"banned words: {words}; limit 0")
    print(f"names with banned words: {names}; limit {NAMES}")
    print(f"lines over {COLUMNS} columns: {long}; limit 0")
    return share < VERB_SHARE or words > 0 or names > NAMES or long > 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
