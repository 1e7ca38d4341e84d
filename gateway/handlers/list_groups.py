"""ListGroups: all groups, or those in some states or of some types. Key 16, versions 0 to 5.

What each version added:
  v1, v2  nothing a client sees here
  v3  flexible
  v4  a filter by state, and each group's state
  v5  a filter by type, and each group's type
States and types are compared without regard to case; an unknown one matches no group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kumquat.core.delivery.dead_letters.open_letters import INTERNAL_GROUP
from kumquat.gateway.groups.views import group_type, protocol_type
from kumquat.gateway.net.dispatch import handles
from kumquat.gateway.wire import ListedGroup, ListGroupsRequest, ListGroupsResponse

if TYPE_CHECKING:
    from kumquat.gateway.net.dispatch import Session


@handles(request=ListGroupsRequest, response=ListGroupsResponse, versions=range(6))
def list_groups(session: Session, request: ListGroupsRequest) -> ListGroupsResponse:
    coordinator = session.broker.coordinator
    states = {state.lower() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}
    listed = []
    for group in coordinator.groups.by_name.values():
        if group.name == INTERNAL_GROUP:
            continue
        state, kind = coordinator.state(group), group_type(group)
        if (states and state.lower() not in states) or (types and kind not in types):
            continue
        listed.append(ListedGroup(group.name, protocol_type(group), state, kind))
    return ListGroupsResponse(groups=listed)
