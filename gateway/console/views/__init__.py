"""What each page shows: functions of the broker that know neither HTML nor requests. One file a page."""
