// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package dialect

import (
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// Outcome is how a stream ended. It is the value of stream.outcome.
type Outcome string

// Outcomes.
const (
	OutcomeCompleted  Outcome = "completed"
	OutcomeIncomplete Outcome = "incomplete"
	OutcomeCancelled  Outcome = "cancelled"
	OutcomeError      Outcome = "error"
	OutcomeUnknown    Outcome = "unknown"
)

// Detail is what a streaming span says besides where its chunks lie.
type Detail struct {
	Outcome Outcome
	// GenAI says that the span carries a key of a GenAI namespace.
	GenAI bool
	// Operation is gen_ai.operation.name.
	Operation string
	// Tokens is the number of output tokens, TokenSource the key that gave it, "" when none did.
	Tokens      int64
	TokenSource string
	// ChunkCount is the number of chunks that the instrumentation reports, 0 when it reports none.
	ChunkCount int64
	// MeanGap is the mean gap in seconds that the instrumentation reports, 0 when it reports none.
	MeanGap float64
}

// details is what the attributes of a streaming span say besides that it streams.
type details struct {
	Detail

	tokens, count *compiledAttr
	finished      bool
	cancelled     bool // a finish reason that means cancelled
	failed        bool // a finish reason that means error
	errorType     string
	grpc          grpcStatus
	disconnected  bool
	http          bool
	hasError      bool
}

type grpcStatus uint8

const (
	grpcNone grpcStatus = iota
	grpcOK
	grpcCancelled
	grpcOther
)

// Detail returns what else a streaming span says.
func (r *Reader) Detail(ev *Evidence, d *Decision) Detail {
	s := &ev.details
	if ev.hasCh {
		eachReason(ev.choice, s.reason)
	}
	if ev.messages != "" {
		eachMessageReason(ev.messages, s.reason)
	}
	s.GenAI = s.GenAI || strings.HasPrefix(ev.Chunks.source, "gen_ai.") || strings.HasPrefix(ev.Chunks.source, "llm.")
	for _, n := range ev.times {
		s.GenAI = s.GenAI || n.event != nil && n.event.genAI
	}
	s.Outcome = s.outcome(ev, d)
	return s.Detail
}

func (s *details) take(row *compiledAttr, v pcommon.Value) {
	s.GenAI = s.GenAI || row.genAI
	switch row.Role {
	case RoleOutputTokens:
		if n, ok := countOf(v); ok {
			s.setTokens(row, n)
		}
	case roleJSONTokens:
		if v.Type() == pcommon.ValueTypeStr {
			if n, ok := jsonTokens(v.Str()); ok {
				s.setTokens(row, n)
			}
		}
	case RoleChunkCount:
		if n, ok := countOf(v); ok && (s.count == nil || row.rank < s.count.rank) {
			s.count, s.ChunkCount = row, n
		}
	case roleMeanGap:
		if f, ok := numberOf(v); ok && f > 0 && f < 1e9 {
			s.MeanGap = f
		}
	case RoleFinishReason:
		eachReason(v, s.reason)
	case roleErrorType:
		s.hasError = true
		if v.Type() == pcommon.ValueTypeStr {
			s.errorType = v.Str()
		}
	case roleGRPCStatus:
		s.grpc = grpcStatusOf(v)
	case roleEnvoyFlags:
		s.disconnected = s.disconnected || v.Type() == pcommon.ValueTypeStr && hasFlag(v.Str(), "DC")
	case roleHTTP:
		s.http = true
	case roleOperation:
		if v.Type() == pcommon.ValueTypeStr {
			s.Operation = v.Str()
		}
	default:
	}
}

func (s *details) setTokens(row *compiledAttr, n int64) {
	if s.tokens == nil || row.rank < s.tokens.rank {
		s.tokens, s.Tokens, s.TokenSource = row, n, row.key
	}
}

var cancelReasons = map[string]bool{"cancelled": true, "canceled": true, "aborted": true, "abort": true}

func (s *details) reason(reason string) {
	if len(reason) > 64 {
		s.finished = true
		return
	}
	switch reason = strings.ToLower(reason); {
	case cancelReasons[reason]:
		s.cancelled = true
	case reason == "error":
		s.failed = true
	default:
		s.finished = true
	}
}

// grpcStatusOf reads a gRPC status written as a number, as the text of one or as its name.
func grpcStatusOf(v pcommon.Value) grpcStatus {
	if n, ok := numberOf(v); ok {
		switch n {
		case 0:
			return grpcOK
		case 1:
			return grpcCancelled
		default:
			return grpcOther
		}
	}
	if v.Type() != pcommon.ValueTypeStr {
		return grpcNone
	}
	switch strings.ToUpper(v.Str()) {
	case "":
		return grpcNone
	case "OK":
		return grpcOK
	case "CANCELLED", "CANCELED":
		return grpcCancelled
	default:
		return grpcOther
	}
}

func hasFlag(flags, flag string) bool {
	for f := range strings.SplitSeq(flags, ",") {
		if strings.TrimSpace(f) == flag {
			return true
		}
	}
	return false
}

// isCancelError reports whether an error type is the name under which a language cancels.
func isCancelError(name string) bool {
	if name == "context canceled" {
		return true
	}
	if i := strings.LastIndexAny(name, ".$"); i >= 0 {
		name = name[i+1:]
	}
	return name == "AbortError" || name == "CancelledError"
}

// outcome applies the rules in the order in which the first that applies wins.
func (s *details) outcome(ev *Evidence, d *Decision) Outcome {
	status := ev.span.Status()
	failed := status.Code() == ptrace.StatusCodeError
	scope := d.scope
	switch {
	case ev.cancel, s.cancelled, s.grpc == grpcCancelled, s.disconnected, isCancelError(s.errorType),
		failed && (strings.Contains(status.Message(), "context canceled") || strings.Contains(status.Message(), "abandoned stream")),
		scope != nil && scope.unsetIsCancelled && status.Code() == ptrace.StatusCodeUnset && !s.finished && !s.failed:
		return OutcomeCancelled
	case failed, s.hasError, s.failed:
		return OutcomeError
	case s.finished, ev.ended, s.grpc == grpcOK, s.http && s.grpc == grpcNone:
		return OutcomeCompleted
	case scope != nil && scope.finish, scope == nil && conventionDialects[d.Dialect]:
		return OutcomeIncomplete
	default:
		return OutcomeUnknown
	}
}
