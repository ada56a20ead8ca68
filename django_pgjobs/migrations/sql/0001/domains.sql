-- The bounds of a job's columns: a value passes its domain where a statement writes it.
--
-- Domains and not CHECK constraints of the table. Those are read from the catalogue again for
-- every statement that writes the table, and hold for every row that an UPDATE touches: a row
-- from before such a constraint would make the claim that takes it fail, together with all
-- others. A domain's constraints are read once per session, and looked at for the values that a
-- statement sets. Texts are compared byte by byte (COLLATE "C"): a language's order costs a
-- claim several microseconds.

-- Arguments: JSON as it was sent, which a query may cast to jsonb.
CREATE DOMAIN pgjobs_payload AS json
    CONSTRAINT pgjobs_payload_is_at_most_1_mib CHECK (octet_length(VALUE::text) <= 1048576)
    CONSTRAINT pgjobs_payload_casts_to_jsonb CHECK (VALUE IS NULL OR VALUE::jsonb IS NOT NULL);

-- What a reader in Python can hold, in any time zone; and no 'infinity' to wait for.
CREATE DOMAIN pgjobs_time AS timestamptz
    CONSTRAINT pgjobs_times_are_in_the_years_1_to_9999
    CHECK (VALUE BETWEEN '0001-01-02 00:00:00+00' AND '9999-12-30 00:00:00+00');
CREATE DOMAIN pgjobs_timeout AS double precision
    CONSTRAINT pgjobs_timeout_is_positive_and_finite CHECK (VALUE > 0 AND VALUE < 'infinity');

-- A change of hands raises it, and the last is followed by a low one (django_pgjobs/sql/__init__.py).
CREATE DOMAIN pgjobs_claim AS bigint
    CONSTRAINT pgjobs_claim_is_from_0_to_9e18 CHECK (VALUE BETWEEN 0 AND 9000000000000000000);
CREATE DOMAIN pgjobs_count AS integer
    CONSTRAINT pgjobs_counts_are_not_negative CHECK (VALUE >= 0);
-- How many jobs or batches, or more of them: those of a tree can be added up.
CREATE DOMAIN pgjobs_sum AS bigint
    CONSTRAINT pgjobs_sums_are_within_1e12
    CHECK (VALUE BETWEEN -1000000000000 AND 1000000000000);
CREATE DOMAIN pgjobs_max_attempts AS integer
    CONSTRAINT pgjobs_max_attempts_is_positive CHECK (VALUE > 0);
CREATE DOMAIN pgjobs_max_losses AS integer
    CONSTRAINT pgjobs_max_losses_is_positive CHECK (VALUE > 0);
CREATE DOMAIN pgjobs_concurrency_limit_of_job AS integer
    CONSTRAINT pgjobs_concurrency_limit_is_positive CHECK (VALUE > 0);
CREATE DOMAIN pgjobs_rate_cost AS integer
    CONSTRAINT pgjobs_rate_cost_is_positive CHECK (VALUE > 0);
CREATE DOMAIN pgjobs_priority AS smallint
    CONSTRAINT pgjobs_priority_is_from_minus_100_to_100 CHECK (VALUE BETWEEN -100 AND 100);

CREATE DOMAIN pgjobs_queue_name AS text COLLATE "C"
    CONSTRAINT pgjobs_queue_name_has_1_to_128_bytes CHECK (octet_length(VALUE) BETWEEN 1 AND 128);
CREATE DOMAIN pgjobs_task_path AS text COLLATE "C"
    CONSTRAINT pgjobs_task_path_has_1_to_512_bytes CHECK (octet_length(VALUE) BETWEEN 1 AND 512);
CREATE DOMAIN pgjobs_backend AS text COLLATE "C"
    CONSTRAINT pgjobs_backend_has_1_to_128_bytes CHECK (octet_length(VALUE) BETWEEN 1 AND 128);
CREATE DOMAIN pgjobs_hold AS text
    CONSTRAINT pgjobs_hold_is_known CHECK (VALUE IN ('dependencies', 'predecessor failed'));
-- One line, because a lane is the key, a line break and the rate limits.
CREATE DOMAIN pgjobs_concurrency_key AS text COLLATE "C"
    CONSTRAINT pgjobs_concurrency_key_has_1_to_512_bytes
    CHECK (octet_length(VALUE) BETWEEN 1 AND 512 AND position(E'\n' IN VALUE) = 0);
CREATE DOMAIN pgjobs_rate_limit_keys AS text COLLATE "C"
    CONSTRAINT pgjobs_rate_limit_keys_have_1_to_1024_bytes
    CHECK (octet_length(VALUE) BETWEEN 1 AND 1024);
CREATE DOMAIN pgjobs_unique_key AS text COLLATE "C"
    CONSTRAINT pgjobs_unique_key_has_1_to_512_bytes CHECK (octet_length(VALUE) BETWEEN 1 AND 512);
CREATE DOMAIN pgjobs_subject AS text COLLATE "C"
    CONSTRAINT pgjobs_subject_has_1_to_512_bytes CHECK (octet_length(VALUE) BETWEEN 1 AND 512);
CREATE DOMAIN pgjobs_schedule_name AS text COLLATE "C"
    CONSTRAINT pgjobs_schedule_name_has_1_to_200_bytes CHECK (octet_length(VALUE) BETWEEN 1 AND 200);
CREATE DOMAIN pgjobs_correlation_id AS text
    CONSTRAINT pgjobs_correlation_id_has_at_most_256_bytes CHECK (octet_length(VALUE) <= 256);

-- Of an empty array the functions say NULL, and that lets it pass.
CREATE DOMAIN pgjobs_texts AS text[]
    CONSTRAINT pgjobs_texts_are_a_plain_list_without_null CHECK (
        CASE
            WHEN array_ndims(VALUE) = 1 AND array_lower(VALUE, 1) = 1
                THEN array_position(VALUE, NULL) IS NULL
            ELSE array_ndims(VALUE) IS NULL
        END
    );
-- Of each tag Python bounds the length, a constraint can only that of all.
CREATE DOMAIN pgjobs_tags AS pgjobs_texts
    CONSTRAINT pgjobs_tags_are_at_most_64_of_16_kib
    CHECK (cardinality(VALUE) <= 64 AND octet_length(array_to_string(VALUE, '')) <= 16384);
CREATE DOMAIN pgjobs_errors AS jsonb
    CONSTRAINT pgjobs_errors_are_a_list CHECK (jsonb_typeof(VALUE) = 'array');

-- The task that is enqueued when a job fails for good, and where: what is copied from here has
-- passed the bounds of its columns.
CREATE DOMAIN pgjobs_on_failure AS jsonb
    CONSTRAINT pgjobs_on_failure_names_a_task CHECK (
        VALUE IS NULL OR COALESCE(
            octet_length(VALUE ->> 'task_path') BETWEEN 1 AND 512
            AND octet_length(COALESCE(VALUE ->> 'queue_name', 'default')) BETWEEN 1 AND 128
            AND octet_length(COALESCE(VALUE ->> 'backend', 'default')) BETWEEN 1 AND 128
            AND COALESCE(VALUE ->> 'priority', '0') ~ '^-?(100|[0-9]{1,2})$'
            AND jsonb_typeof(COALESCE(VALUE -> 'kwargs', '{}')) = 'object'
            AND octet_length(COALESCE(VALUE ->> 'kwargs', '')) <= 1048576,
            FALSE
        )
    );
