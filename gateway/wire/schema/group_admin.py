"""ListGroups, DescribeGroups and DeleteGroups."""

from kumquat.gateway.wire.declare import array, bool_, bytes_, int16, int32, string
from kumquat.gateway.wire.message import message

ListGroupsRequest = message("ListGroupsRequest", key=16, versions=(0, 5), flexible=3)(
    "states_filter" / array(string).since(4),
    "types_filter" / array(string).since(5),
)

ListGroupsResponse = message("ListGroupsResponse", key=16, versions=(0, 5), flexible=3)(
    "throttle_time_ms" / int32.since(1).ignorable(),
    "error_code" / int16,
    "groups"
    / array(
        "ListedGroup",
        "group_id" / string,
        "protocol_type" / string,
        "group_state" / string.since(4).ignorable(),
        "group_type" / string.since(5).ignorable(),
    ),
)
(ListedGroup,) = ListGroupsResponse.structs

DescribeGroupsRequest = message("DescribeGroupsRequest", key=15, versions=(0, 6), flexible=5)(
    "groups" / array(string),
    "include_authorized_operations" / bool_.since(3),
)

DescribeGroupsResponse = message("DescribeGroupsResponse", key=15, versions=(0, 6), flexible=5)(
    "throttle_time_ms" / int32.since(1).ignorable(),
    "groups"
    / array(
        "DescribedGroup",
        "error_code" / int16,
        "error_message" / string.since(6).nullable().default(None),
        "group_id" / string,
        "group_state" / string,
        "protocol_type" / string,
        "protocol_data" / string,
        "members"
        / array(
            "DescribedGroupMember",
            "member_id" / string,
            "group_instance_id" / string.since(4).nullable().default(None).ignorable(),
            "client_id" / string,
            "client_host" / string,
            "member_metadata" / bytes_,
            "member_assignment" / bytes_,
        ),
        "authorized_operations" / int32.since(3).default(-2147483648),
    ),
)
DescribedGroup, DescribedGroupMember = DescribeGroupsResponse.structs

DeleteGroupsRequest = message("DeleteGroupsRequest", key=42, versions=(0, 2), flexible=2)(
    "groups_names" / array(string),
)

DeleteGroupsResponse = message("DeleteGroupsResponse", key=42, versions=(0, 2), flexible=2)(
    "throttle_time_ms" / int32,
    "results"
    / array(
        "DeletableGroupResult",
        "group_id" / string,
        "error_code" / int16,
    ),
)
(DeletableGroupResult,) = DeleteGroupsResponse.structs
