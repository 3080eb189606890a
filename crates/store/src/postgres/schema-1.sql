-- The tables of version 1, in the schema that the search path names first while they are made. Steps only add: nodes of the version
-- before go on beside those of this one, and functions carry a version in their name.

-- What there is one of: the versions of the tables and of the index.
CREATE TABLE facts (
    name text COLLATE "C" PRIMARY KEY,
    value bigint NOT NULL
);
INSERT INTO facts VALUES ('index_version', 0);

-- The log of each node: who has it, and how far it is. A node has one append under way at a time, so that everything up to
-- its last number is there or never will be.
CREATE TABLE slots (
    slot integer PRIMARY KEY,
    -- One more with each holder: what one sends that was declared dead is refused.
    epoch bigint NOT NULL,
    node text NOT NULL,
    release text NOT NULL,
    seen_at timestamptz NOT NULL,
    -- How many events of the others it did not know when it was last seen.
    behind bigint NOT NULL DEFAULT 0,
    number bigint NOT NULL DEFAULT 0,
    stamp bigint NOT NULL DEFAULT 0,
    -- The last batch of the holder, and the number before its first event: so a lost answer can be found out.
    batch bigint NOT NULL DEFAULT 0,
    before bigint NOT NULL DEFAULT 0,
    -- The newest kind of events that the holder can read, and that it writes.
    reads bigint NOT NULL,
    writes bigint NOT NULL,
    -- How the holder is set, a line for each setting, and how long it wants things kept; null for ever. One that does not serve
    -- says nothing and wants nothing.
    settings text NOT NULL,
    finished_ms bigint,
    tombstones_ms bigint,
    -- The version of the index rows that the holder writes; null if it does not say.
    index_version bigint
) WITH (fillfactor = 50);

-- A row stays as the tombstone when its session is deleted.
CREATE TABLE sessions (
    sid bytea PRIMARY KEY,
    tenant text COLLATE "C" NOT NULL,
    session text COLLATE "C" NOT NULL,
    -- The order in which sessions were first written.
    born bigint NOT NULL,
    deleted_at bigint
);
CREATE SEQUENCE sessions_born;
CREATE INDEX sessions_by_birth ON sessions (born) WHERE deleted_at IS NULL;
CREATE INDEX sessions_by_tenant ON sessions (tenant, born) WHERE deleted_at IS NULL;
CREATE INDEX sessions_deleted ON sessions (deleted_at) WHERE deleted_at IS NOT NULL;

CREATE TABLE events (
    sid bytea NOT NULL,
    seq bigint NOT NULL,
    slot integer NOT NULL,
    number bigint NOT NULL,
    stamp bigint NOT NULL,
    checksum bigint NOT NULL,
    bytes bytea NOT NULL,
    PRIMARY KEY (sid, seq)
);
-- Numbers are given out under the lock of the slot's row, births by a sequence: no index need see to it that each is there once,
-- which it could not where the tables are distributed. The stamp is beside them, so that the order over all slots is known without a look at the events.
CREATE INDEX events_by_slot ON events (slot, number) INCLUDE (stamp);

CREATE TABLE snapshots (
    sid bytea PRIMARY KEY,
    seq bigint NOT NULL,
    checksum bigint NOT NULL,
    bytes bytea NOT NULL
);

-- The index row of each session. Has room for new versions of each row beside the old: so most changes touch no index. It is found by
-- its session alone wherever it can be, because a change of any other key writes to every index.
CREATE TABLE listed (
    sid bytea PRIMARY KEY,
    tenant text COLLATE "C" NOT NULL,
    born bigint NOT NULL,
    kind smallint NOT NULL,
    status smallint NOT NULL,
    requester text COLLATE "C" NOT NULL,
    agents text[] NOT NULL,
    created_at bigint NOT NULL,
    finished_at bigint,
    wake bigint,
    summary bytea NOT NULL,
    waiters text[] NOT NULL,
    waits bigint[] NOT NULL
) WITH (fillfactor = 50);
CREATE INDEX listed_to_wake ON listed (wake, born) WHERE wake IS NOT NULL;
CREATE INDEX listed_open ON listed (born) INCLUDE (tenant, requester) WHERE finished_at IS NULL;
CREATE INDEX listed_finished ON listed (finished_at, born) WHERE finished_at IS NOT NULL AND wake IS NULL;

-- On whose lists a session is, and for whom it waits: the agents and the waiters of its row, which is how its rows here are found.
CREATE TABLE lists (
    tenant text COLLATE "C" NOT NULL,
    agent text COLLATE "C" NOT NULL,
    born bigint NOT NULL,
    sid bytea NOT NULL,
    PRIMARY KEY (tenant, agent, born)
);
CREATE TABLE inbox (
    tenant text COLLATE "C" NOT NULL,
    agent text COLLATE "C" NOT NULL,
    born bigint NOT NULL,
    sid bytea NOT NULL,
    kinds bigint NOT NULL,
    PRIMARY KEY (tenant, agent, born)
);

-- How many bytes the events of each requester's sessions have. A node writes rows of its own slot alone, which may be less
-- than none: a session that one node began another may delete.
CREATE TABLE stored (
    slot integer NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    requester text COLLATE "C" NOT NULL,
    bytes bigint NOT NULL,
    PRIMARY KEY (slot, tenant, requester)
) WITH (fillfactor = 70);

CREATE TABLE records (
    space text COLLATE "C" NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    value bytea NOT NULL,
    PRIMARY KEY (tenant, space, key)
);

-- Who lost the race for a session again and again comes next: until then others leave it alone. Never for long, so that a node
-- that stops in between holds nobody up.
CREATE UNLOGGED TABLE turns (
    sid bytea PRIMARY KEY,
    slot integer NOT NULL,
    until timestamptz NOT NULL
);

-- What comes at a rate and is shared by all nodes: when all of it will be there again, in nanoseconds of the Unix epoch, if nobody
-- takes any more. What a node was lent it may use until its time is up, so that much less is there for everybody.
CREATE UNLOGGED TABLE lent (
    tenant text COLLATE "C" NOT NULL,
    agent text COLLATE "C" NOT NULL,
    kind smallint NOT NULL,
    every bigint NOT NULL,
    full_at bigint NOT NULL,
    slots integer[] NOT NULL DEFAULT '{}',
    until bigint[] NOT NULL DEFAULT '{}',
    held bigint[] NOT NULL DEFAULT '{}',
    PRIMARY KEY (tenant, agent, kind)
) WITH (fillfactor = 50);

-- What others must hear of beside events, at positions like theirs.
CREATE TABLE notes (
    slot integer NOT NULL,
    number bigint NOT NULL,
    stamp bigint NOT NULL,
    written_at timestamptz NOT NULL DEFAULT now(),
    -- 1: a session was deleted; 2: a record was written or removed; 3: somebody said this to the other nodes.
    kind smallint NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    space text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    bytes bytea NOT NULL DEFAULT '',
    PRIMARY KEY (slot, number)
);
CREATE INDEX notes_by_time ON notes (written_at);

-- Only the holder of a slot writes to it, and one batch after the other. While a commit of it hangs, those that have given up waiting
-- must not gather here.
CREATE FUNCTION hold_v1(p_slot integer, p_epoch bigint) RETURNS slots
LANGUAGE plpgsql SET search_path FROM CURRENT SET lock_timeout = '2s' AS $$
DECLARE held slots;
BEGIN
    SELECT * INTO held FROM slots WHERE slot = p_slot FOR NO KEY UPDATE;
    IF held.epoch IS DISTINCT FROM p_epoch THEN
        RAISE EXCEPTION 'slot % was taken by another node', p_slot USING ERRCODE = 'HO001';
    END IF;
    RETURN held;
END $$;

-- Be seen, so that nobody takes the slot. Answers with how many others there are, how many of their events the node does not know
-- that has read up to these numbers, and when that was.
CREATE FUNCTION beat_v1(p_slot integer, p_epoch bigint, p_slots integer[], p_numbers bigint[], p_lease interval)
RETURNS TABLE (others bigint, unknown bigint, seen text)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE held slots;
BEGIN
    held := hold_v1(p_slot, p_epoch);
    -- Taken for dead, it did not count when others began that may write what it cannot read: it has to begin again as well.
    IF held.seen_at <= clock_timestamp() - p_lease AND EXISTS (
        SELECT 1 FROM slots o WHERE o.slot <> p_slot AND o.seen_at > clock_timestamp() - p_lease
        AND (o.reads < held.writes OR o.writes > held.reads)) THEN
        RAISE EXCEPTION 'slot % was given up', p_slot USING ERRCODE = 'HO001';
    END IF;
    -- Nor did the rows that it goes on writing now.
    IF held.seen_at <= clock_timestamp() - p_lease THEN
        UPDATE facts SET value = held.index_version WHERE name = 'index_version' AND value > held.index_version;
    END IF;
    RETURN QUERY
    UPDATE slots h SET seen_at = clock_timestamp(), behind = (
        SELECT coalesce(sum(greatest(s.number - coalesce(r.number, 0), 0)), 0)
        FROM slots s LEFT JOIN unnest(p_slots, p_numbers) AS r (slot, number) ON r.slot = s.slot WHERE s.slot <> p_slot)
    WHERE h.slot = p_slot
    RETURNING (SELECT count(*) FROM slots o WHERE o.slot <> p_slot AND o.seen_at > clock_timestamp() - p_lease), h.behind,
        h.seen_at::text;
END $$;

-- Use up the number of a batch in doubt, once one that is under way has come to its end: it is there, or never will be.
CREATE FUNCTION settle_v1(p_slot integer, p_epoch bigint, p_batch bigint) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM hold_v1(p_slot, p_epoch);
    UPDATE slots SET batch = p_batch, before = number WHERE slot = p_slot AND batch = p_batch - 1;
END $$;

-- A slot that nobody has been seen to hold for a while, and of which nothing is under way, or a new one. Nobody takes one who could not read what living nodes write,
-- or writes what they cannot read.
CREATE FUNCTION take_slot_v1(
    p_node text, p_release text, p_lease interval, p_reads bigint, p_writes bigint, p_settings text, p_finished_ms bigint,
    p_tombstones_ms bigint, p_index_version bigint
) RETURNS slots
LANGUAGE plpgsql SET search_path FROM CURRENT SET lock_timeout = '2s' AS $$
DECLARE
    taken slots;
    other slots;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext(current_schema() || '.slots'));
    SELECT * INTO other FROM slots
    WHERE seen_at > clock_timestamp() - p_lease AND (reads < p_writes OR writes > p_reads) ORDER BY slot LIMIT 1;
    IF other.reads < p_writes THEN
        RAISE EXCEPTION 'expected that every node can read events of version %, which this one writes, found that % (release %) reads up to version %: upgrade it, or stop it first',
            p_writes, other.node, other.release, other.reads USING ERRCODE = 'HO003';
    ELSIF other.writes > p_reads THEN
        RAISE EXCEPTION 'expected events up to version %, which this release reads, found that % (release %) writes version %: start that release, or a later one',
            p_reads, other.node, other.release, other.writes USING ERRCODE = 'HO003';
    END IF;
    UPDATE slots SET epoch = epoch + 1, node = p_node, release = p_release, seen_at = clock_timestamp(), batch = 0,
        reads = p_reads, writes = p_writes, settings = p_settings, finished_ms = p_finished_ms, tombstones_ms = p_tombstones_ms,
        index_version = p_index_version
    WHERE slot = (SELECT slot FROM slots WHERE seen_at <= clock_timestamp() - p_lease ORDER BY slot LIMIT 1
                  FOR UPDATE SKIP LOCKED)
    RETURNING * INTO taken;
    IF NOT FOUND THEN
        INSERT INTO slots (slot, epoch, node, release, seen_at, reads, writes, settings, finished_ms, tombstones_ms, index_version)
        SELECT coalesce(max(slot) + 1, 0), 1, p_node, p_release, clock_timestamp(), p_reads, p_writes, p_settings, p_finished_ms,
               p_tombstones_ms, p_index_version
        FROM slots
        RETURNING * INTO taken;
    END IF;
    -- Its rows say less than those that are there: whoever knows more makes them again when it is gone.
    UPDATE facts SET value = p_index_version WHERE name = 'index_version' AND value > p_index_version;
    RETURN taken;
END $$;

-- Whether a living node writes index rows of an older version.
CREATE FUNCTION index_older_v1(p_version bigint, p_lease interval) RETURNS boolean
LANGUAGE sql SET search_path FROM CURRENT AS $$
    SELECT EXISTS (SELECT 1 FROM slots WHERE index_version < p_version AND seen_at > clock_timestamp() - p_lease)
$$;

-- Say which version all index rows have, unless a living node writes older ones. Nobody takes a slot meanwhile.
CREATE FUNCTION set_index_v1(p_version bigint, p_lease interval) RETURNS boolean
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext(current_schema() || '.slots'));
    IF index_older_v1(p_version, p_lease) THEN
        RETURN false;
    END IF;
    UPDATE facts SET value = p_version WHERE name = 'index_version';
    RETURN true;
END $$;

-- How long finished sessions and tombstones are kept: as long as the living node says that wants it longest.
CREATE FUNCTION kept_v1(p_lease interval) RETURNS TABLE (finished bigint, tombstones bigint)
LANGUAGE sql SET search_path FROM CURRENT AS $$
    SELECT coalesce(max(coalesce(finished_ms, 1000000000000000)), 0), coalesce(max(coalesce(tombstones_ms, 1000000000000000)), 0)
    FROM slots WHERE settings <> '' AND seen_at > clock_timestamp() - p_lease
$$;

-- Everything that a batch asks for, for each session at most once. Arrays have one element for each item, those of events one
-- for each event, in the order of the items. Who claims the next turn has lost several times in a row. Answers with one row for
-- each item: what became of it (1 appended, 2 somebody was first, 3 deleted, 4 it is another's turn), and for each of these two
-- numbers: the first number and stamp; the head; the time; the head.
CREATE FUNCTION append_v1(
    p_slot integer, p_epoch bigint, p_batch bigint, p_seen bigint,
    p_sid bytea[], p_tenant text[], p_session text[], p_expected bigint[], p_count integer[], p_size bigint[],
    p_event_of integer[], p_event_at bigint[], p_checksum bigint[], p_bytes bytea[],
    p_has_row boolean[], p_kind smallint[], p_status smallint[], p_requester text[], p_created_at bigint[],
    p_finished_at bigint[], p_summary bytea[], p_agents text[], p_waiters text[], p_waits text[], p_sets_wake boolean[],
    p_wake bigint[], p_snapshot_checksum bigint[], p_snapshot bytea[],
    p_claims boolean[]
) RETURNS TABLE (outcome smallint, first bigint, second bigint)
LANGUAGE plpgsql SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
    SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    held slots;
    base_stamp bigint;
    won boolean[];
    waits boolean[];
    heads bigint[];
    gone bigint[];
    births bigint[];
    starts bigint[];
    total bigint;
    is_new boolean[];
    stays boolean[];
    requesters text[];
BEGIN
    held := hold_v1(p_slot, p_epoch);
    IF held.batch <> p_batch - 1 THEN
        RAISE EXCEPTION 'expected batch % of slot %, found %', held.batch + 1, p_slot, p_batch USING ERRCODE = 'HO002';
    END IF;
    -- A start claims its row; everything else waits for whoever is writing to the session. In the order of the keys on every node,
    -- so that no two wait for each other.
    IF 0 = ANY (p_expected) THEN
        INSERT INTO sessions (sid, tenant, session, born)
        SELECT i.sid, i.tenant, i.session, i.born
        FROM (SELECT p_sid[u.item] AS sid, p_tenant[u.item] AS tenant, p_session[u.item] AS session, nextval('sessions_born') AS born
              FROM generate_subscripts(p_sid, 1) AS u (item)
              WHERE p_expected[u.item] = 0 AND p_count[u.item] > 0
              AND NOT EXISTS (SELECT 1 FROM sessions s WHERE s.sid = p_sid[u.item])
              ORDER BY u.item) i
        ORDER BY i.sid
        ON CONFLICT DO NOTHING;
    END IF;
    PERFORM 1 FROM sessions WHERE sid = ANY (p_sid) ORDER BY sid FOR NO KEY UPDATE;
    -- Nobody else writes to these sessions now.
    SELECT array_agg(coalesce(s.deleted_at IS NULL AND i.expected = h.head AND (h.head > 0 OR i.count > 0) AND t.sid IS NULL, false)
                     ORDER BY i.item),
           array_agg(t.sid IS NOT NULL AND i.expected = h.head ORDER BY i.item),
           array_agg(coalesce(h.head, 0) ORDER BY i.item),
           array_agg(s.deleted_at ORDER BY i.item),
           array_agg(s.born ORDER BY i.item),
           array_agg(l.sid IS NULL ORDER BY i.item),
           array_agg(coalesce(l.waiters = p_waiters[i.item]::text[] AND l.waits = p_waits[i.item]::bigint[],
                              p_waiters[i.item] IS NULL) ORDER BY i.item),
           array_agg(coalesce(l.requester, p_requester[i.item]) ORDER BY i.item),
           greatest(p_seen, held.stamp, coalesce(max(h.stamp), 0))
    INTO won, waits, heads, gone, births, is_new, stays, requesters, base_stamp
    FROM unnest(p_sid, p_expected, p_count) WITH ORDINALITY AS i (sid, expected, count, item)
    LEFT JOIN sessions s ON s.sid = i.sid
    LEFT JOIN listed l ON l.sid = i.sid
    LEFT JOIN turns t ON t.sid = i.sid AND t.slot <> p_slot AND t.until > clock_timestamp()
    LEFT JOIN LATERAL (
        SELECT coalesce(max(seq), 0) AS head, coalesce(max(stamp), 0) AS stamp
        FROM (SELECT e.seq, e.stamp FROM events e WHERE e.sid = i.sid ORDER BY e.seq DESC LIMIT 1) last
    ) h ON true;
    -- Where the events of each winner begin among those that are written.
    SELECT array_agg(before ORDER BY item), max(before + n) INTO starts, total
    FROM (SELECT i.item, i.n, coalesce(sum(i.n) OVER (ORDER BY i.item ROWS UNBOUNDED PRECEDING) - i.n, 0) AS before
          FROM (SELECT item, CASE WHEN w THEN count ELSE 0 END AS n
                FROM unnest(won, p_count) WITH ORDINALITY AS u (w, count, item)) i) o;
    INSERT INTO events (sid, seq, slot, number, stamp, checksum, bytes)
    SELECT p_sid[e.item], p_expected[e.item] + e.at, p_slot, held.number + starts[e.item] + e.at, base_stamp + starts[e.item] + e.at,
           e.checksum, e.bytes
    FROM unnest(p_event_of, p_event_at, p_checksum, p_bytes) AS e (item, at, checksum, bytes)
    WHERE won[e.item];
    UPDATE slots SET batch = p_batch, before = held.number, number = held.number + total, stamp = CASE
        WHEN total > 0 THEN base_stamp + total ELSE held.stamp END
    WHERE slot = p_slot;
    PERFORM index_v1(p_sid, p_tenant, births, won, p_has_row, is_new, stays, p_kind, p_status, p_requester, p_created_at,
                     p_finished_at, p_summary, p_agents, p_waiters, p_waits, p_sets_wake, p_wake, false);
    IF total > 0 THEN
        INSERT INTO stored (slot, tenant, requester, bytes)
        SELECT p_slot, i.tenant, i.requester, sum(i.size)
        FROM unnest(p_tenant, requesters, p_size, won) AS i (tenant, requester, size, won)
        WHERE i.won AND i.requester IS NOT NULL GROUP BY i.tenant, i.requester ORDER BY i.tenant, i.requester
        ON CONFLICT (slot, tenant, requester) DO UPDATE SET bytes = stored.bytes + excluded.bytes;
    END IF;
    IF EXISTS (SELECT 1 FROM unnest(p_snapshot) AS s (bytes) WHERE s.bytes IS NOT NULL) THEN
        INSERT INTO snapshots (sid, seq, checksum, bytes)
        SELECT i.sid, i.expected + i.count, i.checksum, i.bytes
        FROM unnest(p_sid, p_expected, p_count, won, p_snapshot_checksum, p_snapshot)
            AS i (sid, expected, count, won, checksum, bytes)
        WHERE i.won AND i.bytes IS NOT NULL
        ON CONFLICT (sid) DO UPDATE SET seq = excluded.seq, checksum = excluded.checksum, bytes = excluded.bytes;
    END IF;
    IF true = ANY (p_claims) THEN
        DELETE FROM turns t USING unnest(p_sid, p_claims, won) AS i (sid, claims, won)
        WHERE t.sid = i.sid AND t.slot = p_slot AND i.claims AND i.won;
        INSERT INTO turns (sid, slot, until)
        SELECT i.sid, p_slot, clock_timestamp() + interval '50 milliseconds'
        FROM unnest(p_sid, p_claims, won, gone) AS i (sid, claims, won, gone)
        WHERE i.claims AND NOT i.won AND i.gone IS NULL
        ON CONFLICT (sid) DO UPDATE SET slot = excluded.slot, until = excluded.until WHERE turns.until <= clock_timestamp();
    END IF;
    RETURN QUERY
    SELECT CASE WHEN i.won THEN 1 WHEN i.gone IS NOT NULL THEN 3 WHEN i.waits THEN 4 ELSE 2 END::smallint,
           CASE WHEN i.won THEN held.number + i.start + 1 WHEN i.gone IS NOT NULL THEN i.gone ELSE i.head END,
           CASE WHEN i.won THEN base_stamp + i.start + 1 ELSE 0 END
    FROM unnest(won, starts, gone, heads, waits) WITH ORDINALITY AS i (won, start, gone, head, waits, item) ORDER BY i.item;
END $$;

-- Index rows, lists, inboxes and wake times of the items that won: is there no row yet, and does it wait for the same agents as
-- before? Arrays of an item's own come as text, because a part of an array is found by going through all of it. Which agents a session
-- has is decided by its first row, unless everything is made anew. Called with the settings that fix plans.
CREATE FUNCTION index_v1(
    p_sid bytea[], p_tenant text[], p_born bigint[], won boolean[], p_has_row boolean[], is_new boolean[], stays boolean[],
    p_kind smallint[], p_status smallint[], p_requester text[], p_created_at bigint[], p_finished_at bigint[],
    p_summary bytea[], p_agents text[], p_waiters text[], p_waits text[], p_sets_wake boolean[], p_wake bigint[], p_anew boolean
) RETURNS void
LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    IF p_anew THEN
        DELETE FROM lists o USING (
            SELECT l.tenant, a.agent, l.born FROM unnest(p_sid) AS i (sid), listed l, unnest(l.agents) AS a (agent)
            WHERE l.sid = i.sid OFFSET 0) gone
        WHERE o.tenant = gone.tenant AND o.agent = gone.agent AND o.born = gone.born;
    END IF;
    IF true = ANY (p_has_row) THEN
        IF false = ANY (stays) THEN
            -- Apart, so that whatever is planned looks for each of these by its whole key.
            DELETE FROM inbox b USING (
                SELECT l.tenant, w.agent, l.born
                FROM generate_subscripts(p_sid, 1) AS i (item), listed l, unnest(l.waiters) AS w (agent)
                WHERE won[i.item] AND p_has_row[i.item] AND NOT is_new[i.item] AND NOT stays[i.item] AND l.sid = p_sid[i.item]
                AND w.agent <> ALL (p_waiters[i.item]::text[]) OFFSET 0) gone
            WHERE b.tenant = gone.tenant AND b.agent = gone.agent AND b.born = gone.born;
            INSERT INTO inbox (tenant, agent, born, sid, kinds)
            SELECT p_tenant[i.item], w.agent, p_born[i.item], p_sid[i.item], bit_or(w.kinds)
            FROM generate_subscripts(p_sid, 1) AS i (item)
            CROSS JOIN LATERAL unnest(p_waiters[i.item]::text[], p_waits[i.item]::bigint[]) AS w (agent, kinds)
            WHERE won[i.item] AND p_has_row[i.item] AND NOT stays[i.item] GROUP BY i.item, w.agent
            ON CONFLICT (tenant, agent, born) DO UPDATE SET kinds = excluded.kinds WHERE inbox.kinds <> excluded.kinds;
        END IF;
        IF p_anew OR true = ANY (is_new) THEN
            INSERT INTO lists (tenant, agent, born, sid)
            SELECT p_tenant[i.item], a.agent, p_born[i.item], p_sid[i.item]
            FROM generate_subscripts(p_sid, 1) AS i (item) CROSS JOIN LATERAL unnest(p_agents[i.item]::text[]) AS a (agent)
            WHERE won[i.item] AND p_has_row[i.item] AND (is_new[i.item] OR p_anew)
            ON CONFLICT DO NOTHING;
            INSERT INTO listed (sid, tenant, born, kind, status, requester, agents, created_at, finished_at, wake, summary, waiters,
                                waits)
            SELECT p_sid[i.item], p_tenant[i.item], p_born[i.item], p_kind[i.item], p_status[i.item], p_requester[i.item],
                   p_agents[i.item]::text[], p_created_at[i.item], p_finished_at[i.item], p_wake[i.item], p_summary[i.item],
                   p_waiters[i.item]::text[], p_waits[i.item]::bigint[]
            FROM generate_subscripts(p_sid, 1) AS i (item)
            WHERE won[i.item] AND p_has_row[i.item] AND is_new[i.item];
        END IF;
        -- Row and wake time at once: each version of a row costs.
        UPDATE listed l SET kind = p_kind[i.item], status = p_status[i.item], requester = p_requester[i.item],
            agents = CASE WHEN p_anew THEN p_agents[i.item]::text[] ELSE l.agents END,
            created_at = p_created_at[i.item], finished_at = p_finished_at[i.item], summary = p_summary[i.item],
            waiters = CASE WHEN stays[i.item] THEN l.waiters ELSE p_waiters[i.item]::text[] END,
            waits = CASE WHEN stays[i.item] THEN l.waits ELSE p_waits[i.item]::bigint[] END,
            wake = CASE WHEN p_sets_wake[i.item] THEN p_wake[i.item] ELSE l.wake END
        FROM generate_subscripts(p_sid, 1) AS i (item)
        WHERE l.sid = p_sid[i.item] AND won[i.item] AND p_has_row[i.item] AND NOT is_new[i.item];
    END IF;
    IF (SELECT bool_or(u.sets_wake AND NOT u.has_row) FROM unnest(p_sets_wake, p_has_row) AS u (sets_wake, has_row)) THEN
        UPDATE listed l SET wake = p_wake[i.item]
        FROM generate_subscripts(p_sid, 1) AS i (item)
        WHERE l.sid = p_sid[i.item] AND won[i.item] AND p_sets_wake[i.item] AND NOT p_has_row[i.item]
        AND l.wake IS DISTINCT FROM p_wake[i.item];
    END IF;
END $$;

-- A position for something that others must hear of.
CREATE FUNCTION note_v1(
    p_slot integer, p_seen bigint, p_kind smallint, p_tenant text, p_space text, p_key text, p_bytes bytea DEFAULT ''
) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE held slots;
BEGIN
    UPDATE slots SET number = number + 1, stamp = greatest(stamp, p_seen) + 1 WHERE slot = p_slot RETURNING * INTO held;
    INSERT INTO notes (slot, number, stamp, kind, tenant, space, key, bytes)
    VALUES (p_slot, held.number, held.stamp, p_kind, p_tenant, p_space, p_key, p_bytes);
END $$;

CREATE FUNCTION say_v1(p_slot integer, p_epoch bigint, p_seen bigint, p_bytes bytea) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM hold_v1(p_slot, p_epoch);
    PERFORM note_v1(p_slot, p_seen, 3::smallint, '', '', '', p_bytes);
END $$;

-- Change all of these records, or none if one is not over what must be there: 0 whatever it is, 1 nothing, 2 something, 3 this
-- value. No value removes one. What rests on what was read waits for others of its tenant; what does not need not.
CREATE FUNCTION change_records_v1(
    p_slot integer, p_epoch bigint, p_seen bigint, p_space text[], p_tenant text[], p_key text[], p_over smallint[],
    p_before bytea[], p_value bytea[]
) RETURNS boolean
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM hold_v1(p_slot, p_epoch);
    IF array_length(p_over, 1) > 1 OR p_over[1] = 3 THEN
        PERFORM pg_advisory_xact_lock(hashtext(current_schema() || '.records'), hashtext(p_tenant[1]));
    END IF;
    IF EXISTS (
        SELECT 1 FROM unnest(p_space, p_tenant, p_key, p_over, p_before) AS c (space, tenant, key, expected, before)
        LEFT JOIN records r ON r.space = c.space AND r.tenant = c.tenant AND r.key = c.key
        WHERE CASE c.expected WHEN 1 THEN r.key IS NOT NULL WHEN 2 THEN r.key IS NULL
                              WHEN 3 THEN r.value IS DISTINCT FROM c.before ELSE false END) THEN
        RETURN false;
    END IF;
    FOR i IN 1 .. array_length(p_over, 1) LOOP
        IF p_value[i] IS NULL THEN
            DELETE FROM records WHERE space = p_space[i] AND tenant = p_tenant[i] AND key = p_key[i];
        ELSIF p_over[i] = 1 THEN
            INSERT INTO records VALUES (p_space[i], p_tenant[i], p_key[i], p_value[i]) ON CONFLICT DO NOTHING;
        ELSE
            INSERT INTO records VALUES (p_space[i], p_tenant[i], p_key[i], p_value[i])
            ON CONFLICT (space, tenant, key) DO UPDATE SET value = excluded.value;
        END IF;
        -- Somebody may have been first who waits for nobody.
        IF NOT FOUND AND p_over[i] IN (1, 2) THEN
            IF i > 1 THEN
                RAISE EXCEPTION 'a record was changed meanwhile' USING ERRCODE = 'serialization_failure';
            END IF;
            RETURN false;
        END IF;
        PERFORM note_v1(p_slot, p_seen, 2::smallint, p_tenant[i], p_space[i], p_key[i]);
    END LOOP;
    RETURN true;
END $$;

-- Finished sessions, the oldest first. What somebody writes to is passed over.
CREATE FUNCTION delete_finished_v1(
    p_slot integer, p_epoch bigint, p_seen bigint, p_finished_before bigint, p_now bigint, p_max bigint, p_lease interval
) RETURNS TABLE (tenant text, session text, finished_at bigint, requester text, bytes bigint)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
    held slots;
    found_one record;
BEGIN
    held := hold_v1(p_slot, p_epoch);
    p_finished_before := least(p_finished_before, p_now - (SELECT finished FROM kept_v1(p_lease)));
    FOR found_one IN
        SELECT l.sid, l.born, l.agents, l.waiters, s.tenant, s.session, l.finished_at, l.requester,
               (SELECT coalesce(sum(octet_length(e.bytes)), 0) FROM events e WHERE e.sid = l.sid)::bigint AS bytes
        FROM listed l JOIN sessions s ON s.sid = l.sid
        -- Looked at again once both are locked: another node may just have deleted it.
        WHERE l.finished_at < p_finished_before AND l.wake IS NULL AND s.deleted_at IS NULL
        ORDER BY l.finished_at, l.born LIMIT p_max FOR UPDATE OF s, l SKIP LOCKED
    LOOP
        DELETE FROM events WHERE sid = found_one.sid;
        DELETE FROM snapshots WHERE sid = found_one.sid;
        DELETE FROM lists o
        WHERE o.tenant = found_one.tenant AND o.agent = ANY (found_one.agents) AND o.born = found_one.born;
        DELETE FROM inbox b
        WHERE b.tenant = found_one.tenant AND b.agent = ANY (found_one.waiters) AND b.born = found_one.born;
        DELETE FROM listed WHERE sid = found_one.sid;
        UPDATE sessions SET deleted_at = p_now WHERE sid = found_one.sid;
        INSERT INTO stored AS t VALUES (p_slot, found_one.tenant, found_one.requester, -found_one.bytes)
        ON CONFLICT (slot, tenant, requester) DO UPDATE SET bytes = t.bytes + excluded.bytes;
        PERFORM note_v1(p_slot, p_seen, 1::smallint, found_one.tenant, '', found_one.session);
        tenant := found_one.tenant; session := found_one.session; finished_at := found_one.finished_at;
        requester := found_one.requester; bytes := found_one.bytes;
        RETURN NEXT;
    END LOOP;
END $$;

-- Index rows and wake times without events, for an index that is made again.
CREATE FUNCTION restore_v1(
    p_sid bytea[], p_kind smallint[], p_status smallint[], p_requester text[], p_created_at bigint[],
    p_finished_at bigint[], p_summary bytea[], p_agents text[], p_waiters text[], p_waits text[], p_sets_wake boolean[],
    p_wake bigint[]
) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
    SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
DECLARE there boolean[]; tenants text[]; births bigint[]; is_new boolean[]; none boolean[];
BEGIN
    SELECT array_agg(s.born IS NOT NULL ORDER BY i.item), array_agg(s.tenant ORDER BY i.item), array_agg(s.born ORDER BY i.item),
           array_agg(l.sid IS NULL ORDER BY i.item), array_agg(false)
    INTO there, tenants, births, is_new, none
    FROM unnest(p_sid) WITH ORDINALITY AS i (sid, item)
    LEFT JOIN sessions s ON s.sid = i.sid AND s.deleted_at IS NULL LEFT JOIN listed l ON l.sid = i.sid;
    PERFORM index_v1(p_sid, tenants, births, there, there, is_new, none, p_kind, p_status, p_requester, p_created_at,
                     p_finished_at, p_summary, p_agents, p_waiters, p_waits, p_sets_wake, p_wake, true);
END $$;

-- Lend what comes at a rate, to one node, in an order that all nodes keep to. Whatever is held by a node, its own included, counts
-- as used just now: it may be used at any moment. Answers with how many were lent, and in how many nanoseconds there is one.
CREATE FUNCTION lend_v1(
    p_slot integer, p_for bigint, p_tenant text[], p_agent text[], p_kind smallint[], p_every bigint[], p_burst bigint[],
    p_has bigint[], p_wants bigint[], p_owes bigint[]
) RETURNS TABLE (count bigint, after bigint)
LANGUAGE plpgsql SET search_path FROM CURRENT SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    b lent;
    at bigint;
    room bigint;
BEGIN
    FOR i IN 1 .. coalesce(array_length(p_kind, 1), 0) LOOP
        INSERT INTO lent AS l (tenant, agent, kind, every, full_at) VALUES (p_tenant[i], p_agent[i], p_kind[i], p_every[i], 0)
        ON CONFLICT (tenant, agent, kind) DO UPDATE SET every = l.every RETURNING * INTO b;
        at := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint * 1000;
        -- Under another rate as many are missing as before.
        b.full_at := at + ceil(greatest(b.full_at - at, 0)::numeric * p_every[i] / b.every);
        -- What was held until its time was up has been there again from then on at the earliest.
        SELECT greatest(b.full_at, max(least(at, h.until) + p_every[i] * (
                   SELECT sum(l.held) FROM unnest(b.until, b.held) AS l (until, held) WHERE l.until >= h.until)))
        INTO b.full_at FROM unnest(b.until) AS h (until);
        b.full_at := greatest(b.full_at, at) + p_owes[i];
        room := (at + p_burst[i] * p_every[i] - b.full_at) / p_every[i];
        count := least(p_wants[i], greatest(room, 0));
        after := CASE WHEN count > 0 THEN 0 ELSE greatest(b.full_at + p_every[i] - at - p_burst[i] * p_every[i], 0) END;
        UPDATE lent SET every = p_every[i], full_at = b.full_at + count * p_every[i],
            slots = k.slots || p_slot, until = k.until || at + p_for, held = k.held || p_has[i] + count
        FROM (SELECT coalesce(array_agg(l.slot), '{}') AS slots, coalesce(array_agg(l.until), '{}') AS until,
                     coalesce(array_agg(l.held), '{}') AS held
              FROM unnest(b.slots, b.until, b.held) AS l (slot, until, held) WHERE l.slot <> p_slot AND l.until > at) k
        WHERE lent.tenant = p_tenant[i] AND lent.agent = p_agent[i] AND lent.kind = p_kind[i];
        RETURN NEXT;
    END LOOP;
END $$;

-- A page of what others than the holder of one slot wrote after these numbers: the earliest stamps, cut by count and bytes. A
-- function, because its plan is kept: everybody who waits for an answer waits for this. Whoever has lost its slot must not leave it
-- out; since it only reads, all of this is as it was at one moment.
CREATE FUNCTION news_v1(
    p_slots integer[], p_numbers bigint[], p_own integer, p_epoch bigint, p_max bigint, p_bytes bigint
)
RETURNS TABLE (tenant text, session text, slot integer, number bigint, stamp bigint, seq bigint, checksum bigint, bytes bytea,
               kind smallint, space text, agents text[], requester text)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
    SET enable_bitmapscan = off SET enable_hashjoin = off
    SET enable_mergejoin = off SET jit = off AS $$
#variable_conflict use_column
BEGIN
    IF NOT EXISTS (SELECT 1 FROM slots s WHERE s.slot = p_own AND s.epoch = p_epoch) THEN
        RAISE EXCEPTION 'slot % was taken by another node', p_own USING ERRCODE = 'HO001';
    END IF;
    RETURN QUERY
    SELECT c.tenant, c.session, c.slot, c.number, c.stamp, c.seq, c.checksum, c.bytes, c.kind, c.space, c.agents, c.requester
    FROM (SELECT p.*, sum(octet_length(p.bytes)) OVER (ORDER BY p.stamp, p.slot) - octet_length(p.bytes) AS before
          FROM (SELECT coalesce(k.tenant, e.tenant) AS tenant, coalesce(k.session, e.key) AS session, e.slot, e.number, e.stamp, e.seq,
                       e.checksum, e.bytes, e.kind, e.space, coalesce(l.agents, '{}') AS agents, coalesce(l.requester, '') AS requester
                FROM slots s LEFT JOIN unnest(p_slots, p_numbers) AS r (slot, number) ON r.slot = s.slot
                CROSS JOIN LATERAL (
                    SELECT * FROM (
                        (SELECT v.slot, v.number, v.stamp, v.sid, v.seq, v.checksum, v.bytes, NULL::smallint AS kind, NULL AS tenant,
                                NULL AS space, NULL AS key
                         FROM events v WHERE v.slot = s.slot AND v.number > coalesce(r.number, 0) ORDER BY v.number LIMIT p_max)
                        UNION ALL
                        (SELECT n.slot, n.number, n.stamp, NULL, 0, 0, n.bytes, n.kind, n.tenant, n.space, n.key
                         FROM notes n WHERE n.slot = s.slot AND n.number > coalesce(r.number, 0) ORDER BY n.number LIMIT p_max)
                    ) u ORDER BY u.number LIMIT p_max
                ) e
                LEFT JOIN sessions k ON k.sid = e.sid LEFT JOIN listed l ON l.sid = e.sid
                WHERE s.slot <> p_own ORDER BY e.stamp, e.slot LIMIT p_max) p) c
    WHERE c.before < p_bytes ORDER BY c.stamp, c.slot;
END $$;
