"""Sessions as JSON files, and the journal that survives a crash.

A session file is written whole and atomically after every experiment, so that a dead
kernel or a full disk loses at most the running one. What is written is redacted.
"""

from gpu_lab.store.files import (
    OUT_VARIABLE,
    ROOT_VARIABLE,
    StoreError,
    free_name,
    load,
    load_folder,
    load_record,
    now,
    out_folder,
    runs_root,
    save,
    schema,
    write_json,
    write_text,
)
from gpu_lab.store.journal import (
    JOURNAL,
    Journal,
    still_runs,
)
from gpu_lab.store.recorder import (
    FAILED,
    SKIP_VARIABLE,
    SKIPPED,
    STATED,
    Recorder,
    open_session,
    stated_before,
)
from gpu_lab.store.reference import keep_reference, references
from gpu_lab.store.runs import load_run, readable, rename, same_sessions
