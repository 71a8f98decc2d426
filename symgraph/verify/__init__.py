"""Whether a spec is sound (verify) and whether it is complete (audit)."""

from symgraph.verify.audit import AuditReport, audit
from symgraph.verify.preservation import VerifyReport, verify

__all__ = ["AuditReport", "VerifyReport", "audit", "verify"]
