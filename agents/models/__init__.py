"""All rows of the control plane, and the one content model below it."""

from agents.models.approvals import Approval
from agents.models.content import Blob
from agents.models.grants import Grant
from agents.models.identity import (
    Agent,
    AgentEnvironment,
    Environment,
    Membership,
    Organization,
    Team,
    User,
)
from agents.models.keys import AgentKey
from agents.models.observing import AuditEvent, AuditHead, GatewayRequest, IdempotencyRecord
from agents.models.resources import Connector, ModelProvider, RateCard, Tool, VirtualModel
from agents.models.runs import Boot, ParkedCall, Run, RunInitiator
from agents.models.sealing import InstallationSecret

__all__ = [
    "Agent",
    "AgentEnvironment",
    "AgentKey",
    "Approval",
    "AuditEvent",
    "AuditHead",
    "Blob",
    "Boot",
    "Connector",
    "Environment",
    "GatewayRequest",
    "Grant",
    "IdempotencyRecord",
    "InstallationSecret",
    "Membership",
    "ModelProvider",
    "Organization",
    "ParkedCall",
    "RateCard",
    "Run",
    "RunInitiator",
    "Team",
    "Tool",
    "User",
    "VirtualModel",
]
