"""What a server writes down before it answers, so that nothing acknowledged is ever forgotten.

    a turn of the loop:   apply, apply, apply ──> one append ──> reply, reply, reply
    a start:              snapshot ──> the records after it, through `Pool.apply` again ──> ready

`interface` says what a journal is, `sqlite_journal` is one in a data directory. `line` says how far a pool
has come in it, `group_commit` writes to it, `recovery` reads it, and `snapshots` keeps it short.
"""
