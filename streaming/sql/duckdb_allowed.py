"""What `reput sql` allows in a statement for DuckDB: everything here only reads the table, or computes.

Anything that is not named here is refused, so that nodes and functions of a later DuckDB are refused until somebody has
reviewed them. `FUNCTIONS_REFUSED` has no effect: it records decisions, for the test that compares both lists with
DuckDB's own registry.
"""

from __future__ import annotations

from typing import Final


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Parts of a parsed query, as DuckDB's `json_serialize_sql` names them in ``type``: queries, what they read from, and
# how their rows are ordered and cut.
NODES: Final = _names(
    """
    SELECT_NODE SET_OPERATION_NODE RECURSIVE_CTE_NODE CTE_NODE
    BASE_TABLE SUBQUERY JOIN TABLE_FUNCTION EXPRESSION_LIST EMPTY PIVOT SHOW_REF
    LIMIT_MODIFIER LIMIT_PERCENT_MODIFIER ORDER_MODIFIER DISTINCT_MODIFIER
    ORDER_DEFAULT ASCENDING DESCENDING
    """
)
# Expressions, as it names them in ``class``. Values of parameters are in none: there are no parameters.
EXPRESSIONS: Final = _names(
    """
    BETWEEN CASE CAST COLLATE COLUMN_REF COMPARISON CONJUNCTION CONSTANT FUNCTION LAMBDA LAMBDA_REF OPERATOR
    POSITIONAL_REFERENCE STAR SUBQUERY TYPE WINDOW
    """
)
# What ends the name of a description of a data type.
TYPE_INFO: Final = "_TYPE_INFO"
# Statements about the table or a query: DESCRIBE and SUMMARIZE.
DESCRIPTIONS: Final = _names("DESCRIBE SUMMARY")

# Functions in expressions, by kind: each computes a value from its arguments, or from the rows it is given.
FUNCTIONS: Final[dict[str, frozenset[str]]] = {
    kind: _names(names)
    for kind, names in {
        "aggregates": """
            any_value approx_count_distinct approx_quantile approx_top_k arbitrary arg_max arg_max_null
            arg_max_nulls_last arg_min arg_min_null arg_min_nulls_last argmax argmin array_agg avg bit_and bit_or
            bit_xor bitstring_agg bool_and bool_or corr count count_if count_star countif covar_pop covar_samp entropy
            favg first fsum geomean geometric_mean group_concat histogram histogram_exact json_group_array
            json_group_object kahan_sum kurtosis kurtosis_pop last list listagg lttb mad max max_by mean median min
            min_by mode product quantile quantile_cont quantile_disc regr_avgx regr_avgy regr_count regr_intercept
            regr_r2 regr_slope regr_sxx regr_sxy regr_syy reservoir_quantile sem skewness stddev stddev_pop
            stddev_samp string_agg sum sum_no_overflow sumkahan var_pop var_samp variance wavg weighted_avg""",
        "arrays": """
            aggregate apply array_aggr array_aggregate array_append array_apply array_cat array_concat array_contains
            array_cosine_distance array_cosine_similarity array_cross_product array_distance array_distinct
            array_dot_product array_extract array_filter array_grade_up array_has array_has_all array_has_any
            array_indexof array_inner_product array_intersect array_length array_negative_dot_product
            array_negative_inner_product array_pop_back array_pop_front array_position array_prepend array_push_back
            array_push_front array_reduce array_resize array_reverse array_reverse_sort array_select array_slice
            array_sort array_to_string array_to_string_comma_default array_transform array_unique array_value
            array_where array_zip cardinality contains element_at filter flatten generate_series grade_up len length
            list_aggr list_aggregate list_any_value list_append list_apply list_approx_count_distinct list_avg
            list_bit_and list_bit_or list_bit_xor list_bool_and list_bool_or list_cat list_concat list_contains
            list_cosine_distance list_cosine_similarity list_count list_distance list_distinct list_dot_product
            list_element list_entropy list_extract list_filter list_first list_grade_up list_has list_has_all
            list_has_any list_histogram list_indexof list_inner_product list_intersect list_kurtosis
            list_kurtosis_pop list_last list_mad list_max list_median list_min list_mode list_negative_dot_product
            list_negative_inner_product list_pack list_position list_prepend list_product list_reduce list_resize
            list_reverse list_reverse_sort list_select list_sem list_skewness list_slice list_sort list_stddev_pop
            list_stddev_samp list_string_agg list_sum list_transform list_unique list_value list_var_pop
            list_var_samp list_where list_zip range reduce unnest unpivot_list && <@ @> <-> <=>""",
        "maps and structs": """
            map map_concat map_contains map_contains_entry map_contains_value map_entries map_extract
            map_extract_value map_from_entries map_keys map_values row struct_concat struct_contains struct_extract
            struct_extract_at struct_has struct_indexof struct_insert struct_keys struct_pack struct_position
            struct_update struct_values union_extract union_tag union_value""",
        "bits": "& << >> bit_count bit_length bit_position bitstring get_bit set_bit xor | ~",
        "conditions": "assert_true coalesce constant_or_null error if ifnull nullif switch",
        "conversions": """
            bin can_cast_implicitly cast_to_type decode encode enum_code enum_first enum_last enum_range
            enum_range_boundary format_bytes formatreadabledecimalsize formatreadablesize from_base64 from_binary
            from_hex hex parse_formatted_bytes pg_size_pretty pg_typeof to_base to_base64 to_binary to_hex typeof
            unbin unhex base64""",
        "dates and times": """
            age ago century current_date current_localtime current_localtimestamp date_add date_diff date_part
            date_sub date_trunc datediff datepart datesub datetrunc day dayname dayofmonth dayofweek dayofyear
            days_in_month decade epoch epoch_ms epoch_ns epoch_us era get_current_time get_current_timestamp hour
            isodow isoyear julian last_day make_date make_time make_timestamp make_timestamp_ms make_timestamp_ns
            make_timestamptz microsecond millennium millisecond minute month monthname nanosecond
            normalized_interval now quarter second strftime strptime time_bucket timezone timezone_hour
            timezone_minute to_centuries to_days to_decades to_hours to_microseconds to_millennia to_milliseconds
            to_minutes to_months to_quarters to_seconds to_timestamp to_weeks to_years today transaction_timestamp
            try_strptime week weekday weekofyear year yearweek""",
        "hashes": "hash md5 md5_number md5_number_lower md5_number_upper sha1 sha256",
        "json": """
            ->> array_to_json from_json from_json_strict json json_array json_array_length json_contains
            json_deep_merge json_exists json_extract json_extract_path json_extract_path_text json_extract_string
            json_insert json_keys json_merge_patch json_merge_patch_diff json_normalize json_object json_pretty
            json_quote json_remove json_replace json_set json_strip_nulls json_structure json_transform
            json_transform_strict json_type json_valid json_value row_to_json to_json""",
        "mathematics": """
            !__postfix % * ** + - / // @ ^ abs acos acosh add asin asinh atan atan2 atanh binom cbrt ceil ceiling cos
            cosh cot decimal_division degrees divide equi_width_bins even exp factorial fdiv floor fmod gamma gcd
            greatest greatest_common_divisor isfinite isinf isnan is_histogram_other_bin lcm least
            least_common_multiple lgamma ln log log10 log2 mod multiply nextafter pi pow power radians random round
            round_even roundbankers sign signbit sin sinh sqrt subtract tan tanh trunc""",
        "predicates": """
            != !~~ !~~* < <= <> = > >= ^@ __between __cast ends_with ilike_escape like_escape not_ilike_escape
            not_like_escape prefix regexp_full_match regexp_matches starts_with suffix ~~ ~~* ~~~""",
        "strings": """
            || alias ascii bar char_length character_length chr concat concat_ws damerau_levenshtein editdist3 format
            format_pg_type format_type hamming instr jaccard jaro_similarity jaro_winkler_similarity lcase left
            left_grapheme length_grapheme levenshtein lower lpad ltrim mismatches nfc_normalize octet_length ord
            overlay parse_dirname parse_dirpath parse_filename parse_path path_join position printf regexp_escape
            regexp_extract regexp_extract_all regexp_replace regexp_split_to_array repeat replace reverse right
            right_grapheme rpad rtrim split split_part str_split str_split_regex string_split string_split_regex
            string_to_array strip_accents strlen strpos substr substring substring_grapheme translate trim ucase
            unicode upper url_decode url_encode""",
        "unique ids": "gen_random_uuid uuid uuid_extract_timestamp uuid_extract_version uuidv4 uuidv7",
        "windows": """
            cume_dist dense_rank fill first_value lag last_value lead nth_value ntile percent_rank rank rank_dense
            row_number""",
        "about the statement itself": "current_user session_user user version grouping grouping_id",
        "functions of Spark's, see `MACROS`": "explode timestamp_millis unix_millis",
    }.items()
}
# Functions of Spark's that DuckDB has by another name, so that a statement with them means the same to both.
MACROS: Final = {
    "explode(list)": "unnest(list)",
    "timestamp_millis(milliseconds)": "CAST(epoch_ms(milliseconds) AS TIMESTAMP WITH TIME ZONE)",
    # The whole milliseconds before a moment, also before 1970; `epoch_ms` takes the nearest.
    "unix_millis(moment)": "(epoch_us(moment) - (epoch_us(moment) % 1000 + 1000) % 1000) // 1000",
}

# Functions used as tables: each makes rows from its arguments.
TABLE_FUNCTIONS: Final = _names("generate_series json_each json_tree range repeat unnest")

# Refused functions by reason; those whose names begin like `REFUSED_BEGINNINGS` are refused as well, with everything
# else that is not allowed.
FUNCTIONS_REFUSED: Final[dict[str, frozenset[str]]] = {
    reason: _names(names)
    for reason, names in {
        "reads files, or takes addresses of memory": """
            arrow_scan arrow_scan_dumb glob pandas_scan python_arrow_scan python_map_function seq_scan sniff_csv
            add_parquet_key""",
        "runs a text, or reads a table that is named by a text": """
            json_execute_serialized_sql query query_table json_deserialize_sql json_serialize_plan json_serialize_sql
            generate_subscripts regexp_split_to_table summary repeat_row truncate_duckdb_logs histogram_values""",
        "reads or changes settings, variables, sequences, or DuckDB's own state": """
            checkpoint collations copy_database create_external_resource current_catalog current_connection_id
            current_database current_query current_query_id current_role current_schema current_schemas
            current_setting current_transaction_id currval database_list database_size deregister_external_resource
            destroy_external_resource extension_versions force_checkpoint functions get_block_size getvariable
            import_database in_search_path metadata_info nextval platform register_external_resource
            register_external_resource_type setseed setval show show_databases show_tables
            show_tables_expanded stats storage_info table_info txid_current user_agent which_secret write_log
            parse_duckdb_log_message icu_calendar_names vector_type add_grammar_extension remove_grammar_extension
            map_type_id_to_pg_oid""",
        "waits": "pg_sleep sleep_ms",
        "is no function but a part of DuckDB's plans, or of its type system": """
            bitstring_byte_comparable combine combine_aggr create_sort_key decimal_average finalize get_type
            hive_partition_component icu_sort_key index_key invoke make_type map_to_pg_oid remap_struct replace_type
            timetz_byte_comparable to_aggregate_state json_copy_strftime_if_date
            json_copy_strftime_if_timestamp json_group_structure test_all_types test_vector_types
            variant_group_array variant_group_object""",
        "works on a type that the table has not": """
            st_asbinary st_asgeojson st_astext st_aswkb st_aswkt st_crs st_geomfromgeojson st_geomfromwkb
            st_intersects_extent st_setcrs vertex_extract variant_array_length variant_bytes_to_variant
            variant_comparator variant_contains variant_exists variant_extract variant_extract_string variant_keys
            variant_normalize variant_to_parquet_variant variant_type variant_typeof""",
    }.items()
}
REFUSED_BEGINNINGS: Final = (
    *("__internal_", "collate_", "icu_collate_", "duckdb_", "pragma_", "pg_", "has_", "inet_", "read_", "parquet_"),
    *("enable_", "disable_", "verify_", "IS ", "all_profiling", "col_description", "obj_desc", "shobj_desc"),
)

ALLOWED_FUNCTIONS: Final = frozenset[str]().union(*FUNCTIONS.values())
