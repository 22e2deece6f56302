BEGIN TRANSACTION;
CREATE TABLE agent_messages (
                id INTEGER PRIMARY KEY AUTOINCREMENT,
                session_id TEXT NOT NULL,
                message_data TEXT NOT NULL,
                created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP,
                FOREIGN KEY (session_id) REFERENCES agent_sessions (session_id)
                    ON DELETE CASCADE
            );
INSERT INTO "agent_messages" VALUES(1,'chat','{"content": "shell", "role": "user"}','2026-11-18 03:58:47');
INSERT INTO "agent_messages" VALUES(2,'chat','{"arguments": "{\"word\": \"shell\"}", "call_id": "call-1", "name": "look_up", "type": "function_call", "id": "fc"}','2026-11-18 03:58:47');
INSERT INTO "agent_messages" VALUES(3,'chat','{"call_id": "call-1", "output": "SHELL", "type": "function_call_output"}','2026-11-18 03:58:47');
INSERT INTO "agent_messages" VALUES(4,'chat','{"id": "msg", "content": [{"annotations": [], "text": "found: SHELL", "type": "output_text"}], "role": "assistant", "status": "completed", "type": "message"}','2026-11-18 03:58:47');
INSERT INTO "agent_messages" VALUES(5,'chat','{"content": "rock", "role": "user"}','2026-11-18 03:58:47');
INSERT INTO "agent_messages" VALUES(6,'chat','{"arguments": "{\"word\": \"rock\"}", "call_id": "call-2", "name": "look_up", "type": "function_call", "id": "fc"}','2026-11-18 03:58:47');
INSERT INTO "agent_messages" VALUES(7,'chat','{"call_id": "call-2", "output": "ROCK", "type": "function_call_output"}','2026-11-18 03:58:47');
INSERT INTO "agent_messages" VALUES(8,'chat','{"id": "msg", "content": [{"annotations": [], "text": "found: ROCK", "type": "output_text"}], "role": "assistant", "status": "completed", "type": "message"}','2026-11-18 03:58:47');
INSERT INTO "agent_messages" VALUES(9,'chat','{"content": "tide", "role": "user"}','2026-11-18 03:58:47');
INSERT INTO "agent_messages" VALUES(10,'chat','{"arguments": "{\"word\": \"tide\"}", "call_id": "call-3", "name": "look_up", "type": "function_call", "id": "fc"}','2026-11-18 03:58:47');
INSERT INTO "agent_messages" VALUES(11,'chat','{"call_id": "call-3", "output": "TIDE", "type": "function_call_output"}','2026-11-18 03:58:47');
INSERT INTO "agent_messages" VALUES(12,'chat','{"id": "msg", "content": [{"annotations": [], "text": "found: TIDE", "type": "output_text"}], "role": "assistant", "status": "completed", "type": "message"}','2026-11-18 03:58:47');
INSERT INTO "agent_messages" VALUES(13,'chat','{"content": "sand", "role": "user"}','2026-11-18 03:58:47');
INSERT INTO "agent_messages" VALUES(14,'chat','{"arguments": "{\"word\": \"sand\"}", "call_id": "call-2", "name": "look_up", "type": "function_call", "id": "fc"}','2026-11-18 03:58:47');
INSERT INTO "agent_messages" VALUES(15,'chat','{"call_id": "call-2", "output": "SAND", "type": "function_call_output"}','2026-11-18 03:58:47');
INSERT INTO "agent_messages" VALUES(16,'chat','{"id": "msg", "content": [{"annotations": [], "text": "found: SAND", "type": "output_text"}], "role": "assistant", "status": "completed", "type": "message"}','2026-11-18 03:58:47');
INSERT INTO "agent_messages" VALUES(17,'chat','{"content": "foam", "role": "user"}','2026-11-18 03:58:47');
INSERT INTO "agent_messages" VALUES(18,'chat','{"arguments": "{\"word\": \"foam\"}", "call_id": "call-3", "name": "look_up", "type": "function_call", "id": "fc"}','2026-11-18 03:58:47');
INSERT INTO "agent_messages" VALUES(19,'chat','{"call_id": "call-3", "output": "FOAM", "type": "function_call_output"}','2026-11-18 03:58:47');
INSERT INTO "agent_messages" VALUES(20,'chat','{"id": "msg", "content": [{"annotations": [], "text": "found: FOAM", "type": "output_text"}], "role": "assistant", "status": "completed", "type": "message"}','2026-11-18 03:58:47');
INSERT INTO "agent_messages" VALUES(21,'chat','{"content": "kelp", "role": "user"}','2026-11-18 03:58:47');
INSERT INTO "agent_messages" VALUES(22,'chat','{"arguments": "{\"word\": \"kelp\"}", "call_id": "call-3", "name": "look_up", "type": "function_call", "id": "fc"}','2026-11-18 03:58:47');
INSERT INTO "agent_messages" VALUES(23,'chat','{"call_id": "call-3", "output": "KELP", "type": "function_call_output"}','2026-11-18 03:58:47');
INSERT INTO "agent_messages" VALUES(24,'chat','{"id": "msg", "content": [{"annotations": [], "text": "found: KELP", "type": "output_text"}], "role": "assistant", "status": "completed", "type": "message"}','2026-11-18 03:58:47');
INSERT INTO "agent_messages" VALUES(25,'chat','{"content": "salt", "role": "user"}','2026-11-18 03:58:47');
INSERT INTO "agent_messages" VALUES(26,'chat','{"arguments": "{\"word\": \"salt\"}", "call_id": "call-1", "name": "look_up", "type": "function_call", "id": "fc"}','2026-11-18 03:58:47');
INSERT INTO "agent_messages" VALUES(27,'chat','{"call_id": "call-1", "output": "SALT", "type": "function_call_output"}','2026-11-18 03:58:47');
INSERT INTO "agent_messages" VALUES(28,'chat','{"id": "msg", "content": [{"annotations": [], "text": "found: SALT", "type": "output_text"}], "role": "assistant", "status": "completed", "type": "message"}','2026-11-18 03:58:47');
CREATE TABLE agent_sessions (
                session_id TEXT PRIMARY KEY,
                created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP,
                updated_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP
            );
INSERT INTO "agent_sessions" VALUES('chat','2026-11-18 03:58:47','2026-11-18 03:58:47');
CREATE TABLE branch_reservations (
                session_id TEXT NOT NULL,
                branch_id TEXT NOT NULL,
                PRIMARY KEY (session_id, branch_id)
            );
INSERT INTO "branch_reservations" VALUES('chat','main');
INSERT INTO "branch_reservations" VALUES('chat','bold');
INSERT INTO "branch_reservations" VALUES('chat','bolder');
INSERT INTO "branch_reservations" VALUES('chat','fresh');
CREATE TABLE message_structure (
                id INTEGER PRIMARY KEY AUTOINCREMENT,
                session_id TEXT NOT NULL,
                message_id INTEGER NOT NULL,
                branch_id TEXT NOT NULL DEFAULT 'main',
                message_type TEXT NOT NULL,
                sequence_number INTEGER NOT NULL,
                user_turn_number INTEGER,
                branch_turn_number INTEGER,
                tool_name TEXT,
                created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP,
                FOREIGN KEY (session_id)
                    REFERENCES agent_sessions(session_id) ON DELETE CASCADE,
                FOREIGN KEY (message_id)
                    REFERENCES agent_messages(id) ON DELETE CASCADE
            );
INSERT INTO "message_structure" VALUES(1,'chat',1,'main','user',1,1,1,NULL,'2026-11-18 03:58:47');
INSERT INTO "message_structure" VALUES(2,'chat',2,'main','function_call',2,1,1,'look_up','2026-11-18 03:58:47');
INSERT INTO "message_structure" VALUES(3,'chat',3,'main','function_call_output',3,1,1,NULL,'2026-11-18 03:58:47');
INSERT INTO "message_structure" VALUES(4,'chat',4,'main','assistant',4,1,1,NULL,'2026-11-18 03:58:47');
INSERT INTO "message_structure" VALUES(5,'chat',5,'main','user',5,2,2,NULL,'2026-11-18 03:58:47');
INSERT INTO "message_structure" VALUES(6,'chat',6,'main','function_call',6,2,2,'look_up','2026-11-18 03:58:47');
INSERT INTO "message_structure" VALUES(7,'chat',7,'main','function_call_output',7,2,2,NULL,'2026-11-18 03:58:47');
INSERT INTO "message_structure" VALUES(8,'chat',8,'main','assistant',8,2,2,NULL,'2026-11-18 03:58:47');
INSERT INTO "message_structure" VALUES(9,'chat',9,'main','user',9,3,3,NULL,'2026-11-18 03:58:47');
INSERT INTO "message_structure" VALUES(10,'chat',10,'main','function_call',10,3,3,'look_up','2026-11-18 03:58:47');
INSERT INTO "message_structure" VALUES(11,'chat',11,'main','function_call_output',11,3,3,NULL,'2026-11-18 03:58:47');
INSERT INTO "message_structure" VALUES(12,'chat',12,'main','assistant',12,3,3,NULL,'2026-11-18 03:58:47');
INSERT INTO "message_structure" VALUES(13,'chat',1,'bold','user',13,1,1,NULL,'2026-11-18 03:58:47');
INSERT INTO "message_structure" VALUES(14,'chat',2,'bold','function_call',14,1,1,'look_up','2026-11-18 03:58:47');
INSERT INTO "message_structure" VALUES(15,'chat',3,'bold','function_call_output',15,1,1,NULL,'2026-11-18 03:58:47');
INSERT INTO "message_structure" VALUES(16,'chat',4,'bold','assistant',16,1,1,NULL,'2026-11-18 03:58:47');
INSERT INTO "message_structure" VALUES(17,'chat',13,'bold','user',17,2,2,NULL,'2026-11-18 03:58:47');
INSERT INTO "message_structure" VALUES(18,'chat',14,'bold','function_call',18,2,2,'look_up','2026-11-18 03:58:47');
INSERT INTO "message_structure" VALUES(19,'chat',15,'bold','function_call_output',19,2,2,NULL,'2026-11-18 03:58:47');
INSERT INTO "message_structure" VALUES(20,'chat',16,'bold','assistant',20,2,2,NULL,'2026-11-18 03:58:47');
INSERT INTO "message_structure" VALUES(21,'chat',17,'bold','user',21,3,3,NULL,'2026-11-18 03:58:47');
INSERT INTO "message_structure" VALUES(22,'chat',18,'bold','function_call',22,3,3,'look_up','2026-11-18 03:58:47');
INSERT INTO "message_structure" VALUES(23,'chat',19,'bold','function_call_output',23,3,3,NULL,'2026-11-18 03:58:47');
INSERT INTO "message_structure" VALUES(24,'chat',20,'bold','assistant',24,3,3,NULL,'2026-11-18 03:58:47');
INSERT INTO "message_structure" VALUES(25,'chat',1,'bolder','user',25,1,1,NULL,'2026-11-18 03:58:47');
INSERT INTO "message_structure" VALUES(26,'chat',2,'bolder','function_call',26,1,1,'look_up','2026-11-18 03:58:47');
INSERT INTO "message_structure" VALUES(27,'chat',3,'bolder','function_call_output',27,1,1,NULL,'2026-11-18 03:58:47');
INSERT INTO "message_structure" VALUES(28,'chat',4,'bolder','assistant',28,1,1,NULL,'2026-11-18 03:58:47');
INSERT INTO "message_structure" VALUES(29,'chat',13,'bolder','user',29,2,2,NULL,'2026-11-18 03:58:47');
INSERT INTO "message_structure" VALUES(30,'chat',14,'bolder','function_call',30,2,2,'look_up','2026-11-18 03:58:47');
INSERT INTO "message_structure" VALUES(31,'chat',15,'bolder','function_call_output',31,2,2,NULL,'2026-11-18 03:58:47');
INSERT INTO "message_structure" VALUES(32,'chat',16,'bolder','assistant',32,2,2,NULL,'2026-11-18 03:58:47');
INSERT INTO "message_structure" VALUES(33,'chat',21,'bolder','user',33,3,3,NULL,'2026-11-18 03:58:47');
INSERT INTO "message_structure" VALUES(34,'chat',22,'bolder','function_call',34,3,3,'look_up','2026-11-18 03:58:47');
INSERT INTO "message_structure" VALUES(35,'chat',23,'bolder','function_call_output',35,3,3,NULL,'2026-11-18 03:58:47');
INSERT INTO "message_structure" VALUES(36,'chat',24,'bolder','assistant',36,3,3,NULL,'2026-11-18 03:58:47');
INSERT INTO "message_structure" VALUES(37,'chat',25,'fresh','user',37,1,1,NULL,'2026-11-18 03:58:47');
INSERT INTO "message_structure" VALUES(38,'chat',26,'fresh','function_call',38,1,1,'look_up','2026-11-18 03:58:47');
INSERT INTO "message_structure" VALUES(39,'chat',27,'fresh','function_call_output',39,1,1,NULL,'2026-11-18 03:58:47');
INSERT INTO "message_structure" VALUES(40,'chat',28,'fresh','assistant',40,1,1,NULL,'2026-11-18 03:58:47');
CREATE TABLE session_clear_generations (
                session_id TEXT PRIMARY KEY,
                generation INTEGER NOT NULL DEFAULT 0
            );
INSERT INTO "session_clear_generations" VALUES('chat',0);
CREATE TABLE turn_usage (
                id INTEGER PRIMARY KEY AUTOINCREMENT,
                session_id TEXT NOT NULL,
                branch_id TEXT NOT NULL DEFAULT 'main',
                user_turn_number INTEGER NOT NULL,
                requests INTEGER DEFAULT 0,
                input_tokens INTEGER DEFAULT 0,
                output_tokens INTEGER DEFAULT 0,
                total_tokens INTEGER DEFAULT 0,
                input_tokens_details JSON,
                output_tokens_details JSON,
                created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP,
                FOREIGN KEY (session_id)
                    REFERENCES agent_sessions(session_id) ON DELETE CASCADE,
                UNIQUE(session_id, branch_id, user_turn_number)
            );
CREATE INDEX idx_agent_messages_session_id
            ON agent_messages (session_id, id)
        ;
CREATE INDEX idx_structure_session_seq
            ON message_structure(session_id, sequence_number)
        ;
CREATE INDEX idx_structure_branch
            ON message_structure(session_id, branch_id)
        ;
CREATE INDEX idx_structure_turn
            ON message_structure(session_id, branch_id, user_turn_number)
        ;
CREATE INDEX idx_structure_branch_seq
            ON message_structure(session_id, branch_id, sequence_number)
        ;
CREATE INDEX idx_turn_usage_session_turn
            ON turn_usage(session_id, branch_id, user_turn_number)
        ;
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('agent_messages',28);
INSERT INTO "sqlite_sequence" VALUES('message_structure',40);
COMMIT;
