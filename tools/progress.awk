# Reads what `go build -v` prints: a line for each package compiled, among lines that say something else.
# Shows one line for every tenth part, and passes the other lines on. "::failed" stands for the exit status.

/^::failed$/ { failed = 1; next }

/^[A-Za-z0-9._~\/-]+$/ {
	done++
	if (total > 0 && done * 10 >= (tenths + 1) * total) {
		tenths = int(done * 10 / total)
		printf "  %d of about %d packages compiled\n", done, total
		fflush()
	}
	next
}

/^go: downloading / { if (++fetched % 50 == 1) { print "  " $0 " ..."; fflush() } next }

{ print; fflush() }

END { exit failed }
